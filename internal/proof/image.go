package proof

import (
	"archive/tar"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// program is the name of lpuctl in the container.
const program = "lpuctl"

// emptyDirs are those that runtimes mount on.
func emptyDirs() []string { return []string{"dev", "etc", "proc", "run", "sys", "tmp"} }

// isStatic returns an error if a program needs a dynamic linker, which a container of the
// program alone has not.
func isStatic(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("this lpuctl needs a dynamic linker, and so does not run in a container of its own")
		}
	}
	return nil
}

// writeRoot makes the root file system of a container, of lpuctl alone.
func writeRoot(dir, lpuctl string) error {
	for _, name := range append(emptyDirs(), "") {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // the root of a container
			return err
		}
	}
	if err := copyProgram(filepath.Join(dir, program), lpuctl); err != nil {
		return err
	}
	label(dir)
	return nil
}

// copyProgram copies lpuctl. On file systems that share blocks that costs no space.
func copyProgram(to, lpuctl string) (err error) {
	in, err := os.Open(lpuctl)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// label gives a directory and what is in it the SELinux type that containers may read and
// execute, where there is SELinux. Where it fails the engine says what it may not.
func label(dir string) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return
	}
	const context = "system_u:object_r:container_file_t:s0"
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			_ = unix.Lsetxattr(path, "security.selinux", []byte(context+"\x00"), 0)
		}
		return nil
	})
}

// writeLayer writes a layer of an image, of lpuctl alone.
func writeLayer(w io.Writer, lpuctl string) error {
	in, err := os.Open(lpuctl)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, dir := range emptyDirs() {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: program, Mode: 0o755, Size: st.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(t, in)
	return errors.Join(err, t.Close())
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// writeImage writes an image of one layer as docker save does (moby, image/spec), for
// docker load and nerdctl load.
func writeImage(file, name, lpuctl string) (err error) {
	sum, size := sha256.New(), counter(0)
	if err := writeLayer(io.MultiWriter(sum, &size), lpuctl); err != nil {
		return err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	config := fmt.Sprintf(`{"architecture": %q, "os": "linux", "config": {"Entrypoint": ["/%s"], "Labels": {%q: "image"}},
		"rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}`, runtime.GOARCH, program, Label, digest)
	tags, err := json.Marshal([]string{name})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	t := tar.NewWriter(out)
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "layer.tar", Mode: 0o644, Size: int64(size)}); err != nil {
		return err
	}
	if err := writeLayer(t, lpuctl); err != nil {
		return err
	}
	manifest := fmt.Sprintf(`[{"Config": "config.json", "Layers": ["layer.tar"], "RepoTags": %s}]`, tags)
	for _, f := range []struct{ name, text string }{{"config.json", config}, {"manifest.json", manifest}} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(t, f.text); err != nil {
			return err
		}
	}
	return t.Close()
}
