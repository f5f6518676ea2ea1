// bench holds the shipped lpuctl against lspci on the same trees, as whole processes: `cdi generate` reads
// all PCI functions, and so does `lspci -D -n`. It prints a Markdown table of medians.
//
// Needs lspci (apt-get install pciutils), strace and GNU time; LPUCTL is the binary to measure.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// runs is how often each command is timed, in turn with the other one.
const runs = 101

func main() {
	if err := run(cmp.Or(os.Getenv("LPUCTL"), "bin/lpuctl")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(lpuctl string) error {
	dir, err := os.MkdirTemp("", "lpuctl-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Println("| tree | lpuctl ms | lspci ms | ratio | lpuctl MiB | lpuctl calls | lspci calls |")
	fmt.Println("|---|---|---|---|---|---|---|")
	capture := filepath.Join(dir, "capture")
	if err := os.Mkdir(capture, 0o755); err != nil {
		return err
	}
	if err := exec.Command("tar", "xzf", "testdata/sysfs-u55c-x8-iommu.tar.gz", "-C", capture).Run(); err != nil {
		return fmt.Errorf("unpacking the capture (run this from the project's root): %w", err)
	}
	if err := compare("capture", lpuctl, capture, "--config", "testdata/config.yaml"); err != nil {
		return err
	}
	for _, n := range []simulate.Node{
		{Profile: "orion", LPUs: 1, Functions: 40}, {Profile: "orion", LPUs: 8, Functions: 40},
		{Profile: "orion", LPUs: 8, Functions: 400}, {Profile: "orion", LPUs: 64, Functions: 400},
		{Profile: "orion", LPUs: 512},
	} {
		root := filepath.Join(dir, fmt.Sprintf("%s-%d-%d", n.Profile, n.LPUs, n.Functions))
		made, err := n.Write(root)
		if err != nil {
			return err
		}
		if err := compare(fmt.Sprintf("%s, %d functions", lpus(made.LPUs), made.Functions), lpuctl, root); err != nil {
			return err
		}
	}
	return nil
}

func lpus(n int) string {
	if n == 1 {
		return "1 LPU"
	}
	return fmt.Sprintf("%d LPUs", n)
}

func compare(name, lpuctl, root string, flags ...string) error {
	ours := append([]string{lpuctl, "--root", root, "cdi", "generate"}, flags...)
	theirs := []string{"lspci", "-D", "-n", "-A", "linux-sysfs", "-O", "sysfs.path=" + filepath.Join(root, "sys/bus/pci")}
	var a, b, ratios []float64
	for i := range runs + 1 {
		x, err := timed(ours)
		if err != nil {
			return err
		}
		y, err := timed(theirs)
		if err != nil {
			return err
		}
		if i > 0 { // the first pair warms the caches
			a, b, ratios = append(a, x), append(b, y), append(ratios, x/y)
		}
	}
	fmt.Printf("| %s | %.1f | %.1f | %.2f | %s | %s | %s |\n",
		name, median(a), median(b), median(ratios), peak(ours), calls(ours), calls(theirs))
	return nil
}

// timed runs a command and returns its wall time in milliseconds.
func timed(command []string) (float64, error) {
	cmd := exec.Command(command[0], command[1:]...)
	start := time.Now()
	err := cmd.Run()
	if err != nil {
		return 0, fmt.Errorf("%v: %w", command, err)
	}
	return float64(time.Since(start).Microseconds()) / 1000, nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// peak is the most memory the process held. GNU time is asked because it forks: the kernel counts what a
// process shared with its parent before exec, and this program is larger than the one it measures.
func peak(command []string) string {
	out, err := output(append([]string{"/usr/bin/time", "-f", "%M"}, command...))
	if err != nil {
		return "- (apt-get install time)"
	}
	lines := strings.Fields(out)
	kib, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(kib)/1024)
}

// calls is the number of file-system calls, which strace counts; those of the Go runtime are left out.
func calls(command []string) string {
	const trace = "trace=%file,%desc"
	out, err := output(append([]string{"strace", "-f", "-qq", "-c", "-e", trace}, command...))
	if err != nil {
		return "- (apt-get install strace)"
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 4 && f[len(f)-1] == "total" {
			return f[3]
		}
	}
	return "-"
}

// output is what a command says on stderr.
func output(command []string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = &out
	err := cmd.Run()
	return out.String(), err
}
