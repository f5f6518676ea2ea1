package machine

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const mkroot = "test/vm/mkroot.sh"

// Able says what is missing for virtual machines, and for what is done with them: packages by the tool that is in them.
func Able(tools map[string]string) error {
	tools["qemu-system-x86_64"] = "qemu-system-x86"
	for tool, name := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing (apt-get install %s)", tool, name)
		}
	}
	devices, err := exec.Command("qemu-system-x86_64", "-device", "help").Output()
	if err != nil {
		return err
	}
	if !bytes.Contains(devices, []byte(proxy)) {
		return errors.New("this QEMU has no " + proxy + " (Debian 12's 7.2 has)")
	}
	return nil
}

// Debian is the directory with Debian's disk (root.img), kernel (vmlinuz) and initrd (initrd.img), made if it is not there.
func Debian() (string, error) {
	script, err := os.ReadFile(mkroot)
	if err != nil {
		return "", fmt.Errorf("run this from the project's root: %w", err)
	}
	return Cached(fmt.Sprintf("vm-%.6x", sha256.Sum256(script)), func(dir string) error {
		if _, err := exec.LookPath("debootstrap"); err != nil || os.Getuid() != 0 {
			return errors.New("making the disk, once, needs root and debootstrap (apt-get install debootstrap)")
		}
		fmt.Fprintln(os.Stderr, "making the disk, once; this takes minutes")
		return Command(mkroot, dir)
	})
}

// Cached is a directory of the cache, which build makes if it is not there.
func Cached(name string, build func(dir string) error) (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "lpuctl-e2e", name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh := fmt.Sprintf("%s.%d", dir, os.Getpid())
	if err := build(fresh); err != nil {
		_ = os.RemoveAll(fresh)
		return "", err
	}
	return dir, os.Rename(fresh, dir)
}

// Command runs a command that has nothing to say if it succeeds.
func Command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out[max(0, len(out)-2000):])
	}
	return nil
}
