package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// The vendor's library, and a program that loads it by its name, as small as they can be.
const (
	library = "#include <stdio.h>\nint lpus(void) { return puts(\"1\"); }\n" // needs libc.so.6, as the vendor's does
	program = `#include <dlfcn.h>
#include <stdio.h>
int main(void) {
	if (!dlopen("libexample.so", RTLD_NOW)) { puts(dlerror()); return 1; }
	puts("loaded");
	return 0;
}
`
)

// buildPrograms builds the program in three ways, with the machine's compiler, and the library in a directory of its own. Containers
// see the programs in /programs.
func buildPrograms(t *testing.T, libraries string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	machine.Write(t, dir+"/library.c", library)
	machine.Write(t, dir+"/program.c", program)
	if err := os.MkdirAll(libraries, 0o755); err != nil {
		t.Fatal(err)
	}
	machine.Output(t, "gcc", "-shared", "-fPIC", "-o", libraries+"/libexample.so", dir+"/library.c")
	for name, option := range map[string]string{"load": "-O", "static": "-static", "rpath": "-Wl,-rpath,/usr/lib/hyperaccel"} {
		machine.Output(t, "gcc", "-w", option, "-o", filepath.Join(dir, name), dir+"/program.c")
	}
	return dir
}

// importDebian makes an image of a Debian, without what it does not need to start a program.
func importDebian(t *testing.T, p machine.Podman, root string) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "debian.tar")
	machine.Output(t, "tar", "-c", "-C", root, "-f", archive, "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./var/*",
		"--exclude=./usr/share/*", "--exclude=gconv", "--exclude=perl-base", ".")
	machine.Output(t, append(p, "import", "--quiet", archive, "localhost/debian:1")...)
	return "localhost/debian:1"
}

// buildImage builds an image of a Dockerfile's lines, in a directory with the files that it copies.
func buildImage(t *testing.T, p machine.Podman, dir, name string, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Dockerfile")
	machine.Write(t, file, strings.Join(lines, "\n")+"\n")
	machine.Output(t, append(p, "build", "--quiet", "--pull=never", "--layers=false", "--isolation=chroot",
		"--tag", "localhost/"+name, "--file", file, dir)...)
	return "localhost/" + name
}

// loaderOf copies the dynamic loader and the C library of a program to the same places in a directory.
func loaderOf(t *testing.T, program, dir string) {
	t.Helper()
	for _, file := range regexp.MustCompile(`/\S+`).FindAllString(machine.Output(t, "ldd", program), -1) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		machine.Write(t, dir+file, string(data))
		if err := os.Chmod(dir+file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// dockerfileLine is the line of docs/containers.md.
func dockerfileLine(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    (ENV .*)$`).FindSubmatch(page)
	if line == nil {
		t.Fatal("docs/containers.md has no line for a Dockerfile")
	}
	return string(line[1])
}

// TestLoader does what docs/containers.md says of images: a program that is linked with glibc finds the library
// that the spec mounts by one line of the Dockerfile, or by one variable; nothing else finds it.
func TestLoader(t *testing.T) {
	debian := os.Getenv("DEBIAN")
	if debian == "" {
		t.Fatal("DEBIAN must name the directory of the Debian that make e2e makes")
	}
	need(t, "podman", "runc", "busybox", "gcc", machine.FUSE)
	machine.Need(t, nil, "make e2e, with debootstrap", debian+"/usr/bin/dash")
	p := machine.NewPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "1", "--numbers", machine.Numbers(t, 1))
	programs := buildPrograms(t, root+"/opt/hyperaccel/lib")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)

	minimal := t.TempDir() // nothing but glibc
	loaderOf(t, programs+"/load", minimal)
	if err := os.MkdirAll(minimal+"/usr/lib/hyperaccel", 0o755); err != nil {
		t.Fatal(err)
	}
	from := importDebian(t, p, debian)
	line := dockerfileLine(t)
	const variable = "LD_LIBRARY_PATH=/usr/lib/hyperaccel"
	const ldconfig = "RUN echo /usr/lib/hyperaccel >/etc/ld.so.conf.d/lpu.conf && ldconfig"
	images := map[string]string{
		"Debian":           from,
		"Debian, the line": buildImage(t, p, programs, "line", "FROM "+from, line),
		"Debian, ldconfig": buildImage(t, p, programs, "ldconfig", "FROM "+from, ldconfig),
		"glibc":            buildImage(t, p, minimal, "glibc", "FROM scratch", "COPY . /"),
		"glibc, the line":  buildImage(t, p, minimal, "glibc-line", "FROM scratch", "COPY . /", "ENV LD_LIBRARY_PATH=/elsewhere", line),
		"glibc, elsewhere": buildImage(t, p, minimal, "glibc-elsewhere", "FROM scratch", "COPY . /", "ENV LD_LIBRARY_PATH=/elsewhere"),
		"no glibc":         machine.Image,
	}
	const notFound, loaded = "libexample.so: cannot open shared object file: No such file or directory\n", "loaded\n"
	for _, c := range []struct {
		image, program, variable string
		code                     int
		want                     string
	}{
		{"Debian", "load", "", 1, notFound},
		{"Debian", "load", variable, 0, loaded},
		{"Debian, the line", "load", "", 0, loaded},
		{"Debian, ldconfig", "load", "", 1, notFound},
		{"glibc", "load", "", 1, notFound},
		{"glibc", "load", variable, 0, loaded},
		{"glibc", "rpath", "", 0, loaded},
		{"glibc, the line", "load", "", 0, loaded},
		{"no glibc", "load", variable, 1, ""}, // runc cannot start it: its dynamic loader is not there
		{"no glibc", "static", variable, 1, "libc.so.6: cannot open shared object file: No such file or directory\n"},
	} {
		t.Run(strings.Join([]string{c.image, c.program, c.variable}, " "), func(t *testing.T) {
			options := append(device("lpu0"), "--volume", programs+":/programs:ro")
			if c.variable != "" {
				options = append(options, "--env", c.variable)
			}
			r := machine.Run(t, p.Start(images[c.image], options, "/programs/"+c.program)...)
			if r.Code != c.code || r.Stdout != c.want {
				t.Errorf("exit code %d, want %d: %s%s", r.Code, c.code, r.Stdout, r.Stderr)
			}
		})
	}
	// lpuctl run sets the variable where the image does not.
	for image, want := range map[string]string{
		"Debian": loaded, "Debian, the line": loaded, "glibc": loaded, "glibc, the line": loaded, "glibc, elsewhere": notFound,
	} {
		options := []string{"--volume", programs + ":/programs:ro", "{args}"}
		if r := machine.Run(t, append(runOn(t, root, "--"), p.Start(images[image], options, "/programs/load")...)...); r.Stdout != want {
			t.Errorf("%s, started by lpuctl run: exit code %d: %s%s", image, r.Code, r.Stdout, r.Stderr)
		}
	}
	for image, want := range map[string]string{"Debian, the line": variable, "glibc, the line": variable + ":/elsewhere"} {
		env := machine.Output(t, append(p, "image", "inspect", "--format", "{{join .Config.Env \" \"}}", images[image])...)
		if !strings.HasSuffix(strings.TrimSpace(env), want) {
			t.Errorf("%s: the image sets %s, want %s", image, env, want)
		}
	}
}
