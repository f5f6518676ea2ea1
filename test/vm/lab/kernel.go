package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/hyperaccel/lpuctl/test/vm/machine"
)

// kernel is the kernel of the disk that `make vm` makes, and what of its modules the guest needs.
type kernel struct {
	image   string // an ELF file: a guest takes seconds to unpack Debian's bzImage
	modules string // a directory
}

// modules are in the order in which they are loaded.
//
//nolint:gochecknoglobals // a table
var modules = []string{
	"drivers/virtio/virtio", "drivers/virtio/virtio_ring", "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci_legacy_dev",
	"drivers/virtio/virtio_pci", "drivers/char/virtio_console", "drivers/uio/uio", "drivers/uio/uio_pci_generic",
	"drivers/pci/pcie/aer_inject",
}

// unpack takes the kernel out of the disk.
func unpack(work string) (kernel, error) {
	k := kernel{image: filepath.Join(work, "vmlinux"), modules: filepath.Join(work, "modules")}
	debian, err := machine.Debian()
	if err != nil {
		return k, err
	}
	compressed, err := os.ReadFile(filepath.Join(debian, "vmlinuz"))
	if err != nil {
		return k, err
	}
	if err := decompress(compressed, k.image); err != nil {
		return k, fmt.Errorf("%s: %w", debian, err)
	}
	disk := filepath.Join(debian, "root.img")
	release, err := readDir(disk, "/usr/lib/modules")
	if err != nil {
		return k, err
	}
	if err := os.Mkdir(k.modules, 0o755); err != nil {
		return k, err
	}
	for i, module := range modules {
		from := fmt.Sprintf("/usr/lib/modules/%s/kernel/%s.ko", release, module)
		if err := readFile(disk, from, filepath.Join(k.modules, fmt.Sprintf("%02d-%s.ko", i, path.Base(module)))); err != nil {
			return k, err
		}
	}
	return k, buildDriver(disk, release, work, k.modules)
}

// buildDriver builds the stand-in driver with the headers of exactly this kernel, which stay in the cache.
func buildDriver(disk, release, work, to string) error {
	version, err := installedVersion(disk, "linux-image-"+release)
	if err != nil {
		return err
	}
	headers, err := machine.Cached("linux-headers-"+version, func(dir string) error {
		if err := getHeaders(dir, release, version); err != nil {
			return fmt.Errorf("%w\nIf Debian's archive no longer has this version: remove %s, and make vm makes the disk anew",
				err, filepath.Dir(disk))
		}
		return nil
	})
	if err != nil {
		return err
	}
	source := filepath.Join(work, "driver")
	if err := os.CopyFS(source, os.DirFS(lab+"/driver")); err != nil {
		return err
	}
	if err := machine.Command("make", "-C", filepath.Join(headers, "usr/src/linux-headers-"+release), "M="+source, "modules"); err != nil {
		return err
	}
	return install(filepath.Join(source, "lpu_sim.ko"), filepath.Join(to, "99-lpu_sim.ko"))
}

// installedVersion is the version of a Debian package on a disk.
func installedVersion(disk, name string) (string, error) {
	status, err := exec.Command("debugfs", "-R", "cat /var/lib/dpkg/status", disk).Output()
	if err != nil {
		return "", err
	}
	_, paragraph, _ := strings.Cut(string(status), "Package: "+name+"\n")
	_, version, ok := strings.Cut(paragraph, "\nVersion: ")
	version, _, _ = strings.Cut(version, "\n")
	if !ok {
		return "", fmt.Errorf("%s: %s is not installed", disk, name)
	}
	return version, nil
}

// getHeaders unpacks Debian's packages with the headers of a kernel into a directory.
func getHeaders(dir, release, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	series := strings.Join(strings.SplitN(release, ".", 3)[:2], ".") // 6.1 of 6.1.0-50-amd64
	common := "linux-headers-" + strings.TrimSuffix(release, "-amd64") + "-common"
	for _, name := range []string{"linux-headers-" + release, common, "linux-kbuild-" + series} {
		script := `cd "$1" && apt-get download -q "$2" && dpkg -x ./*.deb . && rm ./*.deb`
		if err := machine.Command("sh", "-c", script, "sh", dir, name+"="+version); err != nil {
			return err
		}
	}
	// It names the common headers by a path that they have when they are installed.
	makefile := filepath.Join(dir, "usr/src/linux-headers-"+release, "Makefile")
	return os.WriteFile(makefile, []byte("include ../"+common+"/Makefile\n"), 0o644)
}

// decompress takes the ELF file out of a bzImage (Documentation/x86/boot.rst: setup_sects, payload_offset, payload_length; the last four
// bytes are the length of what comes out).
func decompress(image []byte, to string) error {
	if len(image) < 0x250 {
		return errors.New("vmlinuz is too short")
	}
	begin := (int(image[0x1f1])+1)*512 + int(binary.LittleEndian.Uint32(image[0x248:]))
	end := begin + int(binary.LittleEndian.Uint32(image[0x24c:])) - 4
	if begin > end || end > len(image) {
		return errors.New("vmlinuz has no payload")
	}
	cmd := exec.Command("xz", "-dc")
	cmd.Stdin = bytes.NewReader(image[begin:end])
	return output(cmd, to)
}

// output runs a command and writes its output to a file.
func output(cmd *exec.Cmd, to string) error {
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = file, &said
	if err := errors.Join(cmd.Run(), file.Close()); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, said.String())
	}
	return nil
}

// readFile copies a file out of an ext4 disk, which needs no root.
func readFile(disk, from, to string) error {
	if err := output(exec.Command("debugfs", "-R", "cat "+from, disk), to); err != nil {
		return err
	}
	if s, err := os.Stat(to); err != nil || s.Size() == 0 { // debugfs succeeds always
		return errors.Join(err, fmt.Errorf("%s: there is no %s", disk, from))
	}
	return nil
}

// readDir returns the only name in a directory of an ext4 disk.
func readDir(disk, dir string) (string, error) {
	out, err := exec.Command("debugfs", "-R", "ls -p "+dir, disk).Output() // lines such as /841/040755/0/0/NAME//
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Split(line, "/"); len(fields) > 5 && !strings.HasPrefix(fields[5], ".") {
			return fields[5], nil
		}
	}
	return "", fmt.Errorf("%s: there is nothing in %s", disk, dir)
}

// initramfs makes an archive of busybox, the modules and files, all of which can be run.
func (k kernel) initramfs(dir string, files map[string]string) (string, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	files["bin/busybox"] = busybox
	for _, empty := range []string{"dev", "proc", "sys", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(dir, empty), 0o755); err != nil {
			return "", err
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "modules"), os.DirFS(k.modules)); err != nil {
		return "", err
	}
	for to, from := range files {
		if err := install(from, filepath.Join(dir, to)); err != nil {
			return "", err
		}
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return "", err
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", applet)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	archive := exec.Command("sh", "-c", "busybox find . | busybox cpio -o -H newc")
	archive.Dir = dir
	return dir + ".cpio", output(archive, dir+".cpio")
}

// install copies a program.
func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
