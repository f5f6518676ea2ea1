// vm boots Debian under QEMU, without KVM, on servers with eight simulated cards, with a sick one among them, with drivers
// that come late, and with no card; installs the .deb there, and prints what the guest says of each expectation. Cards are PCI functions
// whose configuration space this program serves, so the guest's kernel and udev see what they would see of an Alveo
// U55C; their driver is uio_pci_generic.
//
// It is run from the project's root, with LPUCTL_DEB naming the package. Arguments are the names of boots; without
// any it is all of them. Needs qemu-system-x86 and mkfs.ext4, and for making the disk, once, root and debootstrap.
package main

import (
	"bytes"
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
	"time"
)

// boots are what is tried, in this order: the later ones start from the disk that the first one leaves.
//
//nolint:gochecknoglobals // a table
var boots = []boot{
	{name: "install", cards: slots, sick: -1},
	{name: "eight", cards: slots, sick: -1, driver: 2, iommu: true},
	{name: "sick", cards: slots, sick: 3, driver: 2},
	{name: "late", cards: slots, sick: -1, driver: 90, kernelArgs: withoutRestart},
	{name: "none", sick: -1, driver: 2, kernelArgs: withoutRestart},
}

// boot is one start of a machine.
type boot struct {
	name        string
	cards, sick int // sick: the number of a card, or -1
	driver      int // seconds that the driver takes to load
	kernelArgs  string
	iommu       bool // vfio-pci binds to a card only if it is in an IOMMU group
}

// withoutRestart is for where there is no LPU: podman fails to start a container that wants one.
const withoutRestart = "systemd.mask=podman-restart.service"

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
	if err := able(); err != nil {
		if os.Getenv("CI") != "" {
			return err
		}
		r.line("skip " + err.Error())
		return nil
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
		if i == 0 {
			err = b.run(r, root, disk, payload)
		} else if len(names) == 0 || slices.Contains(names, b.name) {
			err = b.run(r, root, disk+",snapshot=on", payload) // what is written is thrown away
		}
		if err != nil {
			return err
		}
		if i == 0 && r.counts["fail"] > 0 {
			return errors.New("without the package there is no more to try")
		}
	}
	return nil
}

// run boots a machine from the disk and reports what it says; an error is one of ours.
func (b boot) run(r *report, root, disk, payload string) error {
	m, err := newMachine(b.cards, b.sick)
	if err != nil {
		return err
	}
	if b.iommu {
		m.add("intel-iommu")
		b.kernelArgs += " intel_iommu=on"
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	r.begin(b.name)
	kernelArgs := fmt.Sprintf("vm=%s driver=%d %s", b.name, b.driver, b.kernelArgs)
	r.end(m.boot(ctx, root, disk, payload, filepath.Join(logs, b.name+".console"), kernelArgs, r.line))
	return nil
}

// able says what is missing for virtual machines.
func able() error {
	for tool, name := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs"} {
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
	if _, err := exec.LookPath("debootstrap"); err != nil || os.Getuid() != 0 {
		return "", errors.New("making the disk, once, needs root and debootstrap (apt-get install debootstrap)")
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
