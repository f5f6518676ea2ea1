// vm boots Debian under QEMU, without KVM, on servers with eight simulated cards, with a sick one among them, and
// with none; installs the .deb there, and prints what the guest says of each expectation. Cards are PCI functions
// whose configuration space this program serves, so the guest's kernel and udev see what they would see of an Alveo
// U55C; their driver is uio_pci_generic.
//
// It is run from the project's root, with LPUCTL_DEB naming the package. Arguments are the names of boots; without
// any it is all of them. Needs qemu-system-x86 and mkfs.ext4, and for making the disk, once, root and debootstrap.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// unixRights makes a file go along with a message.
func unixRights(f *os.File) []byte { return syscall.UnixRights(int(f.Fd())) }

// boots are what is tried, in this order: the later ones start from the disk that the first one leaves.
//
//nolint:gochecknoglobals // a table
var boots = []struct {
	name        string
	cards, sick int // sick: the number of a card, or -1
	kernelArgs  string
}{
	{"install", slots, -1, ""},
	{"eight", slots, -1, ""},
	{"sick", slots, 3, ""},
	// A container that is to be started again, and wants an LPU, is podman's failure.
	{"none", 0, -1, "systemd.mask=podman-restart.service"},
}

const (
	guest     = "test/vm/guest"
	mkroot    = "test/vm/mkroot.sh"
	logs      = "dist/vm"
	bootLimit = 8 * time.Minute
)

func main() {
	r := &report{out: os.Stdout, counts: map[string]int{}}
	if err := run(r, os.Getenv("LPUCTL_DEB"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.counts["pass"], r.counts["fail"], r.counts["skip"])
	if r.counts["fail"] > 0 {
		fmt.Println("the consoles are in " + logs)
		os.Exit(1)
	}
}

func run(r *report, deb string, names []string) error {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		return errors.New("qemu-system-x86_64 is missing (apt-get install qemu-system-x86)")
	}
	root, err := cachedRoot()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "lpuctl-vm-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	disk, payload := filepath.Join(work, "disk.img"), filepath.Join(work, "payload.img")
	if err := makePayload(work, payload, deb); err != nil {
		return err
	}
	if err := command("cp", "--sparse=always", filepath.Join(root, "root.img"), disk); err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	for i, b := range boots {
		if i > 0 && len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		r.begin(b.name)
		m, err := newMachine(b.cards, b.sick)
		if err != nil {
			return err
		}
		from := disk
		if i > 0 {
			from += ",snapshot=on" // what is written is thrown away
		}
		ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
		err = m.boot(ctx, root, from, payload, filepath.Join(logs, b.name+".console"), "vm="+b.name+" "+b.kernelArgs, r.line)
		cancel()
		r.end(err)
		if i == 0 && r.counts["fail"] > 0 {
			return errors.New("without the package there is no more to try")
		}
	}
	return nil
}

// cachedRoot is the directory with Debian's disk, kernel and initrd, made if it is not there.
func cachedRoot() (string, error) {
	script, err := os.ReadFile(mkroot)
	if err != nil {
		return "", fmt.Errorf("run this from the project's root: %w", err)
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "lpuctl-e2e", fmt.Sprintf("vm-%.6x", sha256.Sum256(script)))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fmt.Println("making the disk, once; this takes minutes")
	fresh := fmt.Sprintf("%s.%d", dir, os.Getpid())
	if err := command(mkroot, fresh); err != nil {
		_ = os.RemoveAll(fresh)
		return "", err
	}
	return dir, os.Rename(fresh, dir)
}

// makePayload makes the second disk: the package, and what the guest does with it.
func makePayload(work, image, deb string) error {
	dir := filepath.Join(work, "payload")
	if err := os.CopyFS(dir, os.DirFS(guest)); err != nil {
		return fmt.Errorf("run this from the project's root: %w", err)
	}
	for to, from := range map[string]string{"lpuctl.deb": deb, "config.yaml": "testdata/config.yaml"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o644); err != nil {
			return err
		}
	}
	return command("mkfs.ext4", "-q", "-d", dir, image, "64M")
}

// command runs a command that has nothing to say if it succeeds.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out[max(0, len(out)-2000):])
	}
	return nil
}

// report prints what guests say, and counts.
type report struct {
	out    io.Writer
	counts map[string]int
	boot   string
	start  time.Time
	ended  bool // the guest said that there is no more to come
}

func (r *report) begin(boot string) { r.boot, r.start, r.ended = boot, time.Now(), false }

// line takes a line of the guest: "pass WHAT", "fail WHAT", "skip WHAT", "note WHAT", "end", or more about a failure.
func (r *report) line(line string) {
	verdict, what, _ := strings.Cut(line, " ")
	switch verdict {
	case "pass", "fail", "skip", "note":
		r.counts[verdict]++
		fmt.Fprintf(r.out, "%s %-7s %s\n", verdict, r.boot, what)
	case "end":
		r.ended = true
	default:
		fmt.Fprintln(r.out, "             "+line)
	}
}

// end is told how the machine ended.
func (r *report) end(err error) {
	switch {
	case err != nil:
		r.line("fail the machine: " + err.Error())
	case !r.ended:
		r.line("fail the machine went off in the middle of the report")
	}
	fmt.Fprintf(r.out, "     %-7s took %.0f s\n", r.boot, time.Since(r.start).Seconds())
}
