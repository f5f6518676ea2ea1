package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// observedNode is a simulated node of eight LPUs, whose processes lpuctl sees.
type observedNode struct {
	*testing.T
	root    string
	machine *simulate.Machine
}

func newObservedNode(t *testing.T) *observedNode {
	t.Helper()
	n := &observedNode{T: t, root: filepath.Join(t.TempDir(), "node")}
	machine, err := (simulate.Node{Profile: "orion"}).Start(n.root)
	if err != nil {
		t.Fatal(err)
	}
	n.machine = machine
	n.plant("proc/2/comm", "kthreadd\n")
	return n
}

// plant writes a file of the node as [plant.File] does.
func (n *observedNode) plant(name, content string) {
	n.Helper()
	plant.File(n, filepath.Join(n.root, name), content)
}

// holds is a process that has the nodes of LPUs open.
func (n *observedNode) holds(pid, uid int, cgroup string, lpus ...int) {
	n.Helper()
	proc := fmt.Sprintf("proc/%d/", pid)
	for i, lpu := range lpus {
		n.plant(fmt.Sprint(proc, "fd/", i+3), "-> "+n.machine.Card(lpu).Node)
	}
	n.plant(proc+"comm", "secret\n")
	n.plant(proc+"cmdline", "secret\x00--token")
	n.plant(proc+"status", fmt.Sprintf("Name:\tsecret\nUid:\t%d\t0\t0\t0\n", uid))
	n.plant(proc+"stat", fmt.Sprintf("%d (secret) S %s%d 0\n", pid, strings.Repeat("0 ", 18), 100*pid))
	n.plant(proc+"cgroup", cgroup)
}

// record writes a record of the arbiter about an LPU.
func (n *observedNode) record(file, kind, list string) {
	n.Helper()
	n.plant(file, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"boot":%q,"last":9,%s}`, statefile.APIVersion, kind, host.Now().Boot, list))
}

// lpu is an LPU as a record has it.
func (n *observedNode) lpu(i int) string {
	return fmt.Sprintf(`"lpus":[{"address":%q,"name":"lpu%d"}]`, n.machine.Card(i).Address.String(), i)
}

// files are all files of the node, with the time of their latest change.
func (n *observedNode) files() (files []string) {
	n.Helper()
	err := filepath.WalkDir(n.root, func(path string, _ fs.DirEntry, err error) error {
		files = append(files, path+" "+host.State(path))
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	return files
}

// lpuctl is a process of lpuctl on the node.
func (n *observedNode) lpuctl(args ...string) *exec.Cmd {
	return exec.Command("lpuctl", append([]string{"--root", n.root}, args...)...)
}

// exporting is an exporter that runs as a process.
type exporting struct {
	n       *observedNode
	command *exec.Cmd
	url     string
	said    bytes.Buffer // complete when ended
	ended   chan int     // its exit code
}

// export starts an exporter. It has a url if it listens, or else it ends.
func (n *observedNode) export(args ...string) *exporting {
	n.Helper()
	e := &exporting{n: n, command: n.lpuctl(append([]string{"exporter", "--listen", "127.0.0.1:0"}, args...)...), ended: make(chan int, 1)}
	stderr, err := e.command.StderrPipe()
	if err != nil {
		n.Fatal(err)
	}
	if err := e.command.Start(); err != nil {
		n.Fatal(err)
	}
	listens := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&e.said, lines.Text())
			if _, address, found := strings.Cut(lines.Text(), "msg=listening address="); found {
				listens <- address
			}
		}
		close(listens)
		_ = e.command.Wait()
		e.ended <- e.command.ProcessState.ExitCode()
	}()
	n.Cleanup(func() { _ = e.command.Process.Kill() })
	if address := <-listens; address != "" {
		e.url = "http://" + address
	}
	return e
}

// end is the exit code of an exporter that ends.
func (e *exporting) end() int {
	e.n.Helper()
	select {
	case code := <-e.ended:
		return code
	case <-time.After(await.Limit):
		e.n.Fatal("it runs on")
	}
	return 0
}

// get asks for a page.
func (e *exporting) get(page string) (code int, body string) { return getPage(e.url + page) }

// samples are the metrics as Prometheus reads them, as family{values of labels} and value.
func (e *exporting) samples() map[string]float64 {
	e.n.Helper()
	_, text := e.get("/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		e.n.Fatalf("%v\n%s", err, text)
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "token") {
		e.n.Errorf("a command is told:\n%s", text)
	}
	samples := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetValue())
			}
			samples[name+"{"+strings.Join(values, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return samples
}

// eventually waits until the metrics are as they should be. In want, nil is a sample that must not be there.
func (e *exporting) eventually(what string, want map[string]any) {
	e.n.Helper()
	await.Until(e.n, what, func() error {
		var wrong []string
		samples := e.samples()
		for name, value := range want {
			got, there := samples[name]
			if there != (value != nil) || there && fmt.Sprint(got) != fmt.Sprint(value) {
				wrong = append(wrong, fmt.Sprintf("%s is %v, %t; want %v", name, got, there, value))
			}
		}
		if wrong == nil {
			return nil
		}
		slices.Sort(wrong)
		_, text := e.get("/metrics")
		return fmt.Errorf("%s\n%s", strings.Join(wrong, "\n"), text)
	})
}

// TestExporterLostTable: a container that reads the host's ring table is a problem until it is started again.
func TestExporterLostTable(t *testing.T) {
	t.Parallel()
	const rootMount = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
	n := newObservedNode(t)
	node := n.machine.Card(1).Node
	inside := rootMount + "2 1 0:9 / /dev rw - tmpfs none rw\n" +
		fmt.Sprintf("3 2 0:6 %s %s rw - devtmpfs udev rw\n", strings.TrimPrefix(node, "/dev"), node)
	n.plant("proc/1/ns/mnt", "-> mnt:[1]")
	n.plant("proc/1/mountinfo", rootMount+"2 1 0:6 / /dev rw - devtmpfs udev rw\n")
	n.plant("proc/12/ns/mnt", "-> mnt:[2]")
	n.plant("proc/12/mountinfo", inside)
	e := n.export()
	problem := "lpuctl_problem{ring-table-detached,warning}"
	e.eventually("a table is detached", map[string]any{problem: 1})
	n.plant("proc/12/mountinfo", inside+"4 1 0:25 /lpuctl/ring/ab.json "+discovery.HyperdexRingTable+" ro - tmpfs none rw\n")
	e.eventually("the container is started again", map[string]any{problem: nil})
}

func TestExporter(t *testing.T) {
	n := newObservedNode(t)
	id := strings.Repeat("0123456789abcdef", 4)
	n.holds(12, 1001, "0::/user.slice/user-1001.slice/libpod-"+id+".scope/container\n", 0, 1)
	n.holds(15, 0, "0::/system.slice/ssh.service\n", 1)
	n.record("run/lpuctl/leases.json", "Leases", fmt.Sprintf(
		`"leases":[{"id":"l7","uid":1001,"pid":12,%s,"since":1,"wish":{"count":1,"command":"secret"},"grant":{%[1]s,"reason":""}}]`, n.lpu(0)))
	n.record("var/lib/lpuctl/leases.json", "Reservations", fmt.Sprintf(
		`"reservations":[{"id":"r8","uid":1002,"pid":1,%s,"reason":"secret","since":1,"until":%d}]`, n.lpu(3), host.SinceBoot()+time.Hour))
	lpu := func(i int) string {
		return fmt.Sprintf("lpu%d,pci-%s", i, strings.ReplaceAll(n.machine.Card(i).Address.String(), ":", "-"))
	}
	before := n.files()
	e := n.export()
	if e.url == "" {
		t.Fatalf("it ended with %d:\n%s", e.end(), &e.said)
	}
	holder0 := "lpuctl_lpu_holder{" + lpu(0) + ",podman,0123456789ab,1001}"
	e.eventually("at the start", map[string]any{
		"lpuctl_lpu_healthy{" + lpu(7) + "}": 1,
		holder0:                              1,
		"lpuctl_lpu_holder{" + lpu(1) + ",podman,0123456789ab,1001}": 1,
		"lpuctl_lpu_users{" + lpu(1) + "}":                           2,
		"lpuctl_lpu_users{" + lpu(2) + "}":                           0,
		"lpuctl_lpu_leased{" + lpu(0) + ",1001}":                     1,
		"lpuctl_lpu_reserved{" + lpu(3) + ",1002}":                   1,
		"lpuctl_leases_known{}":                                      1,
		"lpuctl_users_hidden{}":                                      0,
		"lpuctl_spec_drift{missing}":                                 66,
		"lpuctl_spec_writes_total{}":                                 0,
	})
	for _, page := range []string{"/healthz", "/readyz"} {
		if code, text := e.get(page); code != http.StatusOK {
			t.Errorf("%s: %d %s", page, code, text)
		}
	}
	if count := len(e.samples()); count > 300 {
		t.Errorf("%d series", count)
	}
	if after := n.files(); !slices.Equal(before, after) {
		t.Errorf("files have changed: %d before, %d now", len(before), len(after))
	}

	if out, err := n.lpuctl("cdi", "refresh").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.eventually("after a refresh", map[string]any{"lpuctl_spec_drift{missing}": 0})
	if out, err := n.lpuctl("cordon", "lpu6", "--reason", "a test").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.eventually("after a cordon", map[string]any{"lpuctl_lpu_cordoned{" + lpu(6) + "}": 1})

	// A process ends, a record is damaged. The driver is unbound so that all is looked at at once.
	if err := os.RemoveAll(filepath.Join(n.root, "proc/12")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.root, "proc/2/comm")); err != nil { // as if it saw its own processes only
		t.Fatal(err)
	}
	n.plant("var/lib/lpuctl/leases.json", "{")
	if err := n.machine.Unbind(5); err != nil {
		t.Fatal(err)
	}
	e.eventually("at the end", map[string]any{
		"lpuctl_lpu_healthy{" + lpu(5) + "}":       0,
		holder0:                                    nil,
		"lpuctl_lpu_holder{" + lpu(1) + ",,,0}":    1,
		"lpuctl_lpu_users{" + lpu(0) + "}":         nil,
		"lpuctl_users_hidden{}":                    1,
		"lpuctl_lpu_leased{" + lpu(0) + ",1001}":   nil,
		"lpuctl_lpu_reserved{" + lpu(3) + ",1002}": nil,
		"lpuctl_leases_known{}":                    0,
	})
	_ = e.command.Process.Signal(os.Interrupt)
	if code := e.end(); code != cli.ExitDone {
		t.Errorf("it ends with %d:\n%s", code, &e.said)
	}
	if said := e.said.String(); strings.Count(said, "who has leased LPUs is not known") != 1 {
		t.Errorf("it said\n%s", said)
	}
}

// serves starts a serve that has no kubelet.
func (n *observedNode) serves() *exec.Cmd {
	n.Helper()
	serve := n.lpuctl("serve", "--listen", "", "--plugin-dir", "/kubelet", "--log-level", "error")
	if err := serve.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { kill(serve) })
	return serve
}

// kill ends a process as it cannot prevent.
func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// present waits until serve is present, or not.
func (n *observedNode) present(want bool) {
	n.Helper()
	file := owner.File{Dir: filepath.Join(n.root, node.StateDir)}
	await.Until(n, fmt.Sprint("serve is present: ", want), func() error {
		got, err := file.Runs(owner.Plugin)
		if err == nil && got != want {
			err = fmt.Errorf("it is: %t", got)
		}
		return err
	})
}

func TestExporterBesideServe(t *testing.T) {
	t.Parallel()
	n := newObservedNode(t)
	if err := os.Mkdir(filepath.Join(n.root, "kubelet"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused := func(e *exporting) {
		t.Helper()
		if code := e.end(); code != cli.ExitUsage || !strings.Contains(e.said.String(), "the device plugin (lpuctl serve) runs on this node") ||
			!strings.Contains(e.said.String(), "remedy: take its metrics") {
			t.Errorf("it ends with %d:\n%s", code, &e.said)
		}
	}
	first := n.serves()
	n.present(true)
	if err := os.Remove(filepath.Join(n.root, node.StateDir, ".owner-plugin.lock")); err != nil {
		t.Fatal(err)
	}
	n.present(true) // again
	refused(n.export())
	second := n.serves() // as while one follows the other
	time.Sleep(time.Second)
	kill(first)
	n.present(true)
	refused(n.export())
	if err := second.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil { // else it had ended before, refused itself
		t.Errorf("the second serve: %v", err)
	}
	n.present(false)

	third := n.serves()
	n.present(true)
	kill(third) // frees it too
	e := n.export()
	if e.url == "" {
		t.Fatalf("nobody serves, and it ends with %d:\n%s", e.end(), &e.said)
	}
	n.serves() // is never refused
	n.present(true)
	refused(e)
}

func TestExporterCannotStart(t *testing.T) {
	n := newObservedNode(t)
	running := n.export()
	address := strings.TrimPrefix(running.url, "http://")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--listen", address}, cli.ExitFailed, `(?s)address already in use.*remedy: .*ss -ltnp`},
		{[]string{"--listen", "9477"}, cli.ExitUsage, `--listen 9477: .*missing port`},
		{[]string{"--listen", ""}, cli.ExitUsage, `--listen : `},
	} {
		e := n.export(c.args...)
		if code := e.end(); code != c.code || !regexp.MustCompile(c.says).MatchString(e.said.String()) {
			t.Errorf("%v: it ends with %d:\n%s", c.args, code, &e.said)
		}
	}
	stop := shown(t, n.root, owner.DRA)
	e := n.export()
	if code := e.end(); code != cli.ExitUsage || !strings.Contains(e.said.String(), "the DRA driver (lpuctl-dra) runs on this node") {
		t.Errorf("it ends with %d:\n%s", code, &e.said)
	}
	stop()
	// A link in the place of the lock says nothing about serve. That is warned of once.
	if err := os.MkdirAll(filepath.Join(n.root, node.StateDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.root, node.StateDir, ".owner-dra.lock")); err != nil {
		t.Fatal(err)
	}
	n.plant(node.StateDir+"/.owner-plugin.lock", "-> elsewhere")
	e = n.export()
	if e.url == "" {
		t.Fatalf("it ended with %d:\n%s", e.end(), &e.said)
	}
	e.eventually("it has looked again", map[string]any{"lpuctl_spec_drift{missing}": 66})
	_ = e.command.Process.Signal(os.Interrupt)
	if code := e.end(); code != cli.ExitDone || strings.Count(e.said.String(), "whether the device plugin (lpuctl serve) runs: ") != 1 {
		t.Errorf("it ends with %d:\n%s", code, &e.said)
	}
}
