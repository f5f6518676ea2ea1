// lab runs tests of lpuctl on a real kernel whose cards fail: it boots Debian's kernel under QEMU, without KVM, with an initramfs of
// busybox, lpuctl and a test binary, in a few seconds. Tests order faults of the cards from [machine.Machine].
//
// It is run from the project's root, with LPUCTL naming a static binary, and prints what `go test -json` would print. Arguments are
// the names of boots; without any it is all of them. TESTS is a regular expression for tests; those named TestLong... run only if
// LPUCTL_LONG is set. What the tests say, also those that pass, is in dist/lab.
// Kernel and modules are taken out of the disk of `make vm`; see there what making it needs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/test/vm/machine"
)

// boots are the machines, each with the package of tests that runs on it.
//
//nolint:gochecknoglobals // a table
var boots = []boot{
	{name: "bus"},
	{name: "standin"},
	{name: "errors", network: 2},
	{name: "capture", network: 2, asked: true},
}

type boot struct {
	name    string // of a directory beside this file
	network int    // how many of the cards report errors (machine.Options)
	asked   bool   // runs only if it is named
}

const (
	lab       = "test/vm/lab"
	logs      = "dist/lab"
	bootLimit = 40 * time.Minute
	testLimit = 36 * time.Minute // within it; tests then say what hangs
)

func main() {
	if err := run(os.Getenv("LPUCTL"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(lpuctl string, names []string) error {
	if err := machine.Able(map[string]string{
		"debugfs": "e2fsprogs", "xz": "xz-utils", "busybox": "busybox-static", "make": "make", "gcc": "gcc",
	}); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "lpuctl-lab-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	kernel, err := unpack(work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	for _, b := range boots {
		if len(names) == 0 && !b.asked || slices.Contains(names, b.name) {
			err = errors.Join(err, b.run(kernel, lpuctl, work))
		}
	}
	return err
}

// run boots a machine that runs the tests of a package. The error is nil if they pass.
func (b boot) run(k kernel, lpuctl, work string) error {
	tests := filepath.Join(work, b.name+".test")
	compile := exec.Command("go", "test", "-c", "-tags", "vmlab", "-ldflags", "-s -w", "-o", tests, "./"+filepath.Join(lab, b.name))
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	initramfs, err := k.initramfs(filepath.Join(work, b.name), map[string]string{
		"init": lab + "/init.sh", "lab/test": tests, "bin/lpuctl": lpuctl, "lab/capture.sh": "testdata/capture.sh",
		"etc/lpuctl/config.yaml": lab + "/config.yaml", "etc/lpuctl/ring.yaml": lab + "/ring.yaml",
	})
	if err != nil {
		return err
	}
	return machine.Again(b.name, func() error { return b.boot(k.image, initramfs) })
}

// boot boots the machine, and prints what its tests said unless QEMU crashed.
func (b boot) boot(kernel, initramfs string) error {
	m, err := machine.New(machine.Options{Memory: 1024, Cards: machine.Slots, Sick: -1, Network: b.network})
	if err != nil {
		return err
	}
	for port, kind := range map[string]string{"out": "log", "files": "tar"} {
		m.Add("-chardev", "file,id="+port+",path="+b.log(kind), "-device", "virtserialport,chardev="+port+",name="+port)
	}
	m.Add("-kernel", kernel, "-initrd", initramfs, "-append", machine.Arguments+" "+arguments(),
		"-serial", "file:"+b.log("console"), "-device", "isa-debug-exit,iobase=0xf4,iosize=1")
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	start := time.Now()
	err = m.Boot(ctx, func(string) {})
	fmt.Fprintf(os.Stderr, "%s took %.1f s\n", b.name, time.Since(start).Seconds())
	if err = b.verdict(err); machine.Crashed(err) {
		return err
	}
	return errors.Join(err, b.report())
}

// log is the path of one of the files that are kept.
func (b boot) log(kind string) string { return filepath.Join(logs, b.name+"."+kind) }

// read is what such a file has, or why it cannot be read.
func (b boot) read(kind string) string {
	text, err := os.ReadFile(b.log(kind))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// arguments are the variables for init.sh.
func arguments() string {
	skip := "^TestLong"
	if long := os.Getenv("LPUCTL_LONG"); long != "" {
		skip = "^$ LPUCTL_LONG=" + long
	}
	return fmt.Sprintf("TIMEOUT=%s RUN=%s SKIP=%s", testLimit, os.Getenv("TESTS"), skip)
}

// verdict is what the end of QEMU says about the tests: isa-debug-exit makes 2*code+1 of their exit code.
func (b boot) verdict(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok && exit.ExitCode() == 1 && strings.HasSuffix(b.read("log"), "PASS\n"):
		return nil
	case ok && exit.ExitCode() == 3:
		return fmt.Errorf("%s: tests failed", b.name)
	default:
		lines := strings.Split(b.read("console"), "\n")
		end := strings.Join(lines[max(0, len(lines)-100):], "\n")
		if err == nil {
			err = errors.New("QEMU ended as if the machine was off")
		}
		return fmt.Errorf("%s: the machine ended in the middle of the tests: %w; the end of its console:\n%s", b.name, err, end)
	}
}

// report prints what the tests said as `go test -json` does.
func (b boot) report() error {
	convert := exec.Command("go", "tool", "test2json", "-p", "github.com/hyperaccel/lpuctl/"+filepath.Join(lab, b.name))
	convert.Stdin, convert.Stdout, convert.Stderr = strings.NewReader(b.read("log")), os.Stdout, os.Stderr
	return convert.Run()
}
