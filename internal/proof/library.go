package proof

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Library is a shared library in what is mounted. It was read, and not loaded.
type Library struct {
	Path string `json:"path"` // in the container
	// Fault is why the dynamic linker cannot load it: it is of another architecture, say.
	Fault string `json:"fault,omitempty"`
	// Unread is why it was not judged: a linker script, say, is no ELF file.
	Unread string `json:"unread,omitempty"`
	// Missing are the libraries that it needs and that are not in the container.
	Missing []string `json:"missing"`
}

// machineOf is the ELF machine of an architecture, as Go calls it; 0: not known.
func machineOf(arch string) elf.Machine {
	return map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390,
	}[arch]
}

// systemDirs are those that the dynamic linker looks into without being asked: ld.so(8),
// and Debian's for each architecture.
func systemDirs() []string {
	triplet := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64le"}[runtime.GOARCH]
	if triplet == "" {
		triplet = runtime.GOARCH
	}
	dirs := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}
	return append(dirs, "/lib/"+triplet+"-linux-gnu", "/usr/lib/"+triplet+"-linux-gnu")
}

// libraries reads the shared libraries in the mounts: below a directory that is mounted as
// far as two levels, or a file that is mounted itself.
func (in *Inside) libraries(p *Promise) []Library {
	libraries, dirs := []Library{}, []string{}
	for _, m := range p.Mounts {
		for _, below := range []string{"", "lib", "*/lib"} {
			pattern := filepath.Join(in.path(m.Path), below, "lib*.so*")
			found, _ := filepath.Glob(pattern) // fails on a bad pattern only
			for _, file := range found {
				libraries, dirs = in.readInto(libraries, dirs, file)
			}
		}
		if name := filepath.Base(m.Path); strings.HasPrefix(name, "lib") && strings.Contains(name, ".so") {
			libraries, dirs = in.readInto(libraries, dirs, in.path(m.Path))
		}
	}
	for i := range libraries {
		in.look(&libraries[i], dirs)
	}
	return libraries
}

func (in *Inside) readInto(libraries []Library, dirs []string, file string) ([]Library, []string) {
	shown := "/" + strings.TrimPrefix(strings.TrimPrefix(file, in.Root), "/")
	if dir := filepath.Dir(shown); !slices.Contains(dirs, dir) {
		dirs = append(dirs, dir)
	}
	return append(libraries, Library{Path: shown, Missing: []string{}}), dirs
}

// look reads a library, and looks for what it needs: where it says itself, where the
// environment says, where the other libraries are, and where the linker looks anyway.
func (in *Inside) look(l *Library, beside []string) {
	opened, err := os.Open(in.path(l.Path))
	if err != nil {
		l.Fault = host.Reason(err).Error()
		return
	}
	defer func() { _ = opened.Close() }()
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := opened.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		l.Unread = "it is no ELF file"
		return
	}
	file, err := elf.NewFile(opened)
	if err != nil {
		l.Fault = err.Error()
		return
	}
	if want := machineOf(runtime.GOARCH); want != 0 && file.Machine != want {
		l.Fault = fmt.Sprintf("it is of %v, and the machine is %v", file.Machine, want)
		return
	}
	dirs := []string{}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		paths, _ := file.DynString(tag) // without a dynamic section there is none
		for _, path := range paths {
			origin := strings.NewReplacer("$ORIGIN", filepath.Dir(l.Path), "${ORIGIN}", filepath.Dir(l.Path))
			dirs = append(dirs, filepath.SplitList(origin.Replace(path))...)
		}
	}
	for _, v := range in.Environ {
		if path, ok := strings.CutPrefix(v, "LD_LIBRARY_PATH="); ok {
			dirs = append(dirs, filepath.SplitList(path)...)
		}
	}
	dirs = slices.Concat(dirs, beside, systemDirs())
	needed, err := file.ImportedLibraries()
	if err != nil {
		l.Fault = "its list of needed libraries cannot be read: " + err.Error()
	}
	for _, name := range needed {
		if !slices.ContainsFunc(dirs, func(dir string) bool { return in.exists(filepath.Join(dir, name)) }) {
			l.Missing = append(l.Missing, name)
		}
	}
}

func (in *Inside) exists(path string) bool {
	_, err := os.Stat(in.path(path))
	return err == nil
}

// fromImage are the missing libraries of a container that its image brings: those that
// this machine has where the linker looks. The container of the proof has an image of
// nothing but lpuctl.
func fromImage(libraries []Library) (image []string, differences []string) {
	here := &Inside{Root: "/"}
	for _, l := range libraries {
		if l.Fault != "" {
			differences = append(differences, fmt.Sprintf("the library %s cannot be loaded: %s", l.Path, l.Fault))
		}
		for _, name := range l.Missing {
			switch isSystem := func(dir string) bool { return here.exists(filepath.Join(dir, name)) }; {
			case !slices.ContainsFunc(systemDirs(), isSystem):
				differences = append(differences, fmt.Sprintf("the library %s needs %s, which no mount brings", l.Path, name))
			case !slices.Contains(image, name):
				image = append(image, name)
			}
		}
	}
	return image, differences
}
