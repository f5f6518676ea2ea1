package machine

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Image is the name of the image of busybox; no registry is asked.
const Image = "localhost/lpuctl-e2e:1"

// Inspect prints what a container has got of LPUs: variables, nodes with their numbers and whether they open, mounts.
const Inspect = `env | sort | while read v; do case $v in LPU_*|NUM_LPU*) echo "env $v";; esac; done
for n in /dev/lpu*; do [ -e $n ] || continue; echo "node $n $(stat -c %t:%T $n)"; (exec 3<>$n) 2>/dev/null && echo "opens $n"; done
if [ -e /usr/lib/hyperaccel/version ]; then
  echo "lib $(cat /usr/lib/hyperaccel/version)"; touch /usr/lib/hyperaccel/x 2>/dev/null && echo "lib is writable"
fi; true`

// layer is a root file system as a tar archive.
func layer(t *testing.T) []byte {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, func(w *tar.Writer) error {
		for _, applet := range []string{"sh", "cat", "env", "grep", "ls", "mknod", "sleep", "sort", "stat", "touch"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"}); err != nil {
				return err
			}
		}
		return addFile(w, "bin/busybox", program)
	})
}

// WriteImage writes an archive of the image as docker save does (moby, image/spec/spec.md), under several names.
func WriteImage(t *testing.T, path string, names ...string) {
	t.Helper()
	tags, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	layer := layer(t)
	data := archive(t, func(w *tar.Writer) error {
		for name, data := range map[string]string{
			"layer.tar": string(layer),
			"config.json": fmt.Sprintf(`{"architecture": %q, "os": "linux", "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
				"rootfs": {"type": "layers", "diff_ids": ["sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256(layer)),
			"manifest.json": fmt.Sprintf(`[{"Config": "config.json", "Layers": ["layer.tar"], "RepoTags": %s}]`, tags),
		} {
			if err := addFile(w, name, []byte(data)); err != nil {
				return err
			}
		}
		return nil
	})
	Write(t, path, string(data))
}

func archive(t *testing.T, fill func(*tar.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(fill(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func addFile(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// Podman is the command line of a podman, up to its subcommand.
type Podman []string

// NewPodman is root's podman with storage of its own and the image.
func NewPodman(t *testing.T) Podman {
	t.Helper()
	store, err := os.MkdirTemp("/tmp", "podman") //nolint:usetesting // podman refuses a path of more than 50 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(store+"/root/vfs", unix.MNT_DETACH) // it may not have come to that
		_ = os.RemoveAll(store)
	})
	p := PodmanIn(store, "podman")
	p.Import(t)
	return p
}

// PodmanIn is the podman that a command runs, with storage in a directory.
func PodmanIn(store string, command ...string) Podman {
	return append(slices.Clone(command), "--root", store+"/root", "--runroot", store+"/run", "--tmpdir", store+"/tmp",
		"--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--log-level", "error")
}

// Import gives it the image.
func (p Podman) Import(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "layer.tar")
	Write(t, file, string(layer(t)))
	// Podman may run as another user.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	Output(t, slices.Concat(p, []string{"import", "--quiet", file, Image})...)
}

// Container is the command that starts a container with options and runs a shell script in it.
func (p Podman) Container(script string, options ...string) []string {
	return p.Start(Image, options, "sh", "-c", script)
}

// Start is the command that starts a container of an image with options and runs a command in it. The limits are given because podman
// would raise them, which a machine may forbid.
func (p Podman) Start(image string, options []string, command ...string) []string {
	return slices.Concat(p, []string{"run", "--rm", "--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"},
		options, []string{image}, command)
}

// Run runs such a container to its end.
func (p Podman) Run(t *testing.T, script string, options ...string) Result {
	t.Helper()
	return Run(t, p.Container(script, options...)...)
}

// Install makes this machine a simulated node, as far as a container runtime looks: nodes, what the software
// installed, and the spec directory.
func Install(t *testing.T, root string) {
	t.Helper()
	nodes := glob(t, root, "/dev/lpu*", "/dev/dri/renderD*")
	if len(nodes) == 0 {
		t.Fatal("the node has no device nodes")
	}
	for _, here := range nodes {
		var st unix.Stat_t
		if err := unix.Lstat(root+here, &st); err != nil {
			t.Fatal(err)
		}
		if dir := filepath.Dir(here); os.Mkdir(dir, 0o755) == nil {
			t.Cleanup(func() { _ = os.Remove(dir) })
		}
		if err := MakeNode(here, unix.Major(st.Rdev), unix.Minor(st.Rdev)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(here) })
	}
	for _, dir := range glob(t, root, "/opt/*") {
		BindMount(t, root+dir, dir)
	}
	BindMount(t, root+"/var/run/cdi", "/run/cdi")
	BindMount(t, root+"/run/lpuctl/ring", "/run/lpuctl/ring")
}

// AsNode makes this machine a node as far as a container runtime looks, as [Install] does, and returns what takes it back: what changes on
// the node between the two is seen only when it is called again.
func AsNode(t *testing.T, root string) (end func()) {
	t.Helper()
	var made, mounted []string
	for _, dir := range glob(t, root, "/opt/*", "/dev/dri", "/var/run/cdi", "/run/lpuctl") {
		here := strings.Replace(dir, "/var/run/", "/run/", 1)
		if err := os.Mkdir(here, 0o755); err == nil {
			made = append(made, here)
		} else if !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		if err := unix.Mount(root+dir, here, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("%s: %v", here, err)
		}
		mounted = append(mounted, here)
	}
	return func() {
		for _, here := range mounted {
			if err := unix.Unmount(here, unix.MNT_DETACH); err != nil {
				t.Errorf("%s: %v", here, err)
			}
		}
		for _, here := range made {
			if err := os.Remove(here); err != nil {
				t.Error(err)
			}
		}
	}
}

// glob is the paths below a root that match patterns, without the root.
func glob(t *testing.T, root string, patterns ...string) (paths []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			paths = append(paths, strings.TrimPrefix(path, root))
		}
	}
	return paths
}

// BindMount shows a directory in another place, too, until the test ends; it makes those that are not there.
func BindMount(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(to, 0o755)); err != nil {
		t.Fatal(err)
	}
	Mount(t, from, to, "", unix.MS_BIND, "")
}

// BindGroups shows the control groups of this machine below a root.
func BindGroups(t *testing.T, root string) {
	t.Helper()
	to := filepath.Join(root, "sys/fs/cgroup")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	Mount(t, "/sys/fs/cgroup", to, "", unix.MS_BIND|unix.MS_REC, "")
	if err := unix.Mount("", to, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil { // else the machine's go with these
		t.Error(err)
	}
}

// InstallRing makes a ring of LPUs, by index, a node's table.
func InstallRing(t *testing.T, root, ring string) {
	t.Helper()
	table := filepath.Join(t.TempDir(), "ring.yaml")
	Write(t, table, "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: ["+ring+"]\n")
	Lpuctl(t, "--root", root, "ring", "install", table)
}
