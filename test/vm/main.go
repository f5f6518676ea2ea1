// vm boots Debian under QEMU, without KVM, on servers with eight simulated cards, with a sick one among them, with drivers
// that come late, and with no card; installs the .deb there, and prints what the guest says of each expectation. Cards are PCI functions
// whose configuration space this program serves, so the guest's kernel and udev see what they would see of an Alveo
// U55C; their driver is uio_pci_generic.
//
// It is run from the project's root, with LPUCTL_DEB naming the package. Arguments are the names of boots; without
// any it is all of them; -disk only makes the disk. Needs qemu-system-x86 and mkfs.ext4, and for making the disk, once,
// root and debootstrap.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/test/vm/machine"
)

// boots are what is tried, in this order: the later ones start from the disk that the first one leaves.
//
//nolint:gochecknoglobals // a table
var boots = []boot{
	{name: "install", cards: machine.Slots, sick: -1},
	{name: "eight", cards: machine.Slots, sick: -1, iommu: true},
	{name: "sick", cards: machine.Slots, sick: 3},
	{name: "people", cards: machine.Slots, sick: -1},
	{name: "late", cards: machine.Slots, sick: -1, kernelArgs: withoutRestart + " udev.event_timeout=900"}, // drivers come when it wants
	{name: "none", sick: -1, kernelArgs: withoutRestart},
}

// boot is one start of a machine.
type boot struct {
	name        string
	cards, sick int // sick: the number of a card, or -1
	kernelArgs  string
	iommu       bool // vfio-pci binds to a card only if it is in an IOMMU group
}

// withoutRestart is for where there is no LPU: podman fails to start a container that wants one.
const withoutRestart = "systemd.mask=podman-restart.service"

const (
	guest     = "test/vm/guest"
	logs      = "dist/vm"
	bootLimit = 15 * time.Minute
)

func main() {
	if slices.Equal(os.Args[1:], []string{"-disk"}) { // only make it
		if _, err := machine.Debian(); err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			os.Exit(1)
		}
		return
	}
	r := &report{out: os.Stdout, counts: map[string]int{}}
	if err := run(r, os.Getenv("LPUCTL_DEB"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.counts["pass"], r.counts["fail"], r.counts["skip"])
	if r.counts["fail"] > 0 {
		fmt.Println("the consoles are in " + logs)
		fmt.Println(strings.Join(r.failures, "\n")) // once more: who sees only the end of all this wants them
		os.Exit(1)
	}
}

func run(r *report, deb string, names []string) error {
	if err := machine.Able(map[string]string{"mkfs.ext4": "e2fsprogs"}); err != nil {
		if os.Getenv("CI") != "" {
			return err
		}
		r.line("skip " + err.Error())
		return nil
	}
	root, err := machine.Debian()
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
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	for i, b := range boots {
		if i == 0 {
			err = machine.Again(b.name, func() error {
				if err := machine.Command("cp", "--sparse=always", filepath.Join(root, "root.img"), disk); err != nil {
					return err
				}
				return b.run(r, root, disk, payload)
			})
		} else if len(names) == 0 || slices.Contains(names, b.name) {
			err = machine.Again(b.name, func() error { return b.run(r, root, disk+",snapshot=on", payload) }) // what is written is thrown away
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

// run boots a machine from the disk and reports what it says. An error is one of ours, or that QEMU crashed.
func (b boot) run(r *report, root, disk, payload string) error {
	m, err := machine.New(machine.Options{Memory: 1536, Cards: b.cards, Sick: b.sick})
	if err != nil {
		return err
	}
	if b.iommu {
		m.Add("-device", "amd-iommu") // beside proxies QEMU 7.2 crashed in 8 of 14 boots with intel-iommu, and in none of 16 with this
	}
	m.Add("-kernel", filepath.Join(root, "vmlinuz"), "-initrd", filepath.Join(root, "initrd.img"),
		"-append", fmt.Sprintf("%s root=/dev/vda rw vm=%s %s", machine.Arguments, b.name, b.kernelArgs),
		"-serial", "file:"+filepath.Join(logs, b.name+".console"),
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+disk, "-device", "virtio-blk-pci,bus=pcie.0,drive=disk",
		"-drive", "if=none,id=payload,format=raw,read-only=on,file="+payload, "-device", "virtio-blk-pci,bus=pcie.0,drive=payload")
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	r.begin(b.name)
	err = m.Boot(ctx, r.line)
	if machine.Crashed(err) {
		return err
	}
	r.end(err)
	return nil
}

// makePayload makes the second disk: the package, and what the guest does with it.
func makePayload(work, image, deb string) error {
	dir := filepath.Join(work, "payload")
	if err := os.CopyFS(dir, os.DirFS(guest)); err != nil {
		return fmt.Errorf("run this from the project's root: %w", err)
	}
	for to, from := range map[string]string{"lpuctl.deb": deb, "config.yaml": "testdata/config.yaml", "run.md": "docs/run.md"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o644); err != nil {
			return err
		}
	}
	return machine.Command("mkfs.ext4", "-q", "-d", dir, image, "64M")
}

// report prints what guests say, and counts.
type report struct {
	out      io.Writer
	counts   map[string]int
	before   map[string]int // what they were when the boot began
	failures []string       // lines
	boot     string
	start    time.Time
	ended    bool // the guest said that there is no more to come
}

// begin is told which machine is booted. If it is the same again, what it said the last time does not count.
func (r *report) begin(boot string) {
	if boot == r.boot {
		r.counts, r.failures = r.before, r.failures[:r.before["fail"]]
	}
	r.boot, r.before, r.start, r.ended = boot, maps.Clone(r.counts), time.Now(), false
}

// line takes a line of the guest: "pass WHAT", "fail WHAT", "skip WHAT", "note WHAT", "end", or more about a failure.
func (r *report) line(line string) {
	verdict, what, _ := strings.Cut(line, " ")
	switch verdict {
	case "pass", "fail", "skip", "note":
		r.counts[verdict]++
		said := fmt.Sprintf("%s %-7s %s", verdict, r.boot, what)
		fmt.Fprintln(r.out, said)
		if verdict == "fail" {
			r.failures = append(r.failures, said)
		}
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
