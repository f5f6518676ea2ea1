package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// tables is where the ring tables of containers are.
const tables = "/run/lpuctl/ring"

// TestRing: by the table that a container of a pod has HyperDex' program computes over cables that are there, however the plugin hands
// LPUs out: on one LPU, on an arc across the end of the address order, and on the pieces of what is not connected.
func TestRing(t *testing.T) {
	for _, c := range []struct{ name, binaries, config, strategy string }{
		{"CDI", os.Getenv("CONTAINERD"), containerd2, "cdi-cri"},
		{"device specs", os.Getenv("OLD_CONTAINERD"), fmt.Sprintf(containerd1, false), "device-specs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBedOn(t, c.binaries, c.config)
			plugin := b.serve("--device-list-strategy", c.strategy)
			holder := b.fill()
			b.remove(holder[6], holder[7], holder[0], holder[1])
			if got := b.check(t, b.run("four", 4), 4, true); !slices.Equal(got, []int{6, 7, 0, 1}) {
				t.Errorf("four has LPUs %v", got)
			}
			b.remove(holder[2], holder[3], holder[5])
			three := b.run("three", 3)
			b.check(t, three, 3, false)
			if err := b.server().Apart(three.ringPrint(), []int{2, 3}, []int{5}); err != nil {
				t.Errorf("three: %v", err)
			}
			b.boots("four-"+nodeName, "three-"+nodeName)
			b.check(t, b.inspectAgain("four-"+nodeName, 1), 4, true)
			b.check(t, b.inspectAgain("three-"+nodeName, 1), 3, false)
			// Before the plugin is there after a boot no container of such a pod starts. containerd makes a directory where the table was.
			plugin.Stop(unix.SIGTERM)
			b.emptyTables()
			b.kill("four")
			await.Until(t, "the container is refused", func() error {
				p, err := b.pod("four")
				for _, c := range p.Status.ContainerStatuses {
					if strings.Contains(c.State.Waiting.Message, tables) {
						return nil
					}
				}
				return errors.Join(err, fmt.Errorf("%+v", p.Status))
			})
			plugin = b.serve("--device-list-strategy", c.strategy, "--pod-resources")
			await.Until(t, "it runs again", func() error {
				p, err := b.pod("four")
				if err == nil && (len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready) {
					err = fmt.Errorf("%+v", p.Status)
				}
				return err
			})
			if err := b.server().Right(b.execute("four-"+nodeName, machine.PrintRing), 6, 7, 0, 1); err != nil {
				t.Errorf("four, after the plugin: %v", err)
			}
			machine.ReplaceRingTable(t, nodeRoot, func() error {
				return b.server().Right(b.execute("four-"+nodeName, machine.PrintRing), 6, 7, 0, 1)
			})
			await.Until(t, "serve names the pod to make again", func() error {
				return errors.Join(plugin.Says("id=ring-table-detached"), plugin.Says("kubectl --namespace default delete pod four-"+nodeName))
			})
		})
	}
}

// emptyTables removes the ring tables of containers, as a boot does.
func (b *bed) emptyTables() (were []string) {
	b.t.Helper()
	were = b.tables()
	for _, file := range were {
		b.do(os.Remove(file))
	}
	return were
}

func (b *bed) tables() []string {
	files, err := filepath.Glob(tables + "/*.json")
	b.do(err)
	return files
}

// boots does to ring tables and containers of pods what a boot does, once the tables are there again.
func (b *bed) boots(pods ...string) {
	b.t.Helper()
	were := b.emptyTables()
	began := time.Now()
	await.Until(b.t, "the tables are there again", func() error {
		if are := b.tables(); !slices.Equal(are, were) {
			return fmt.Errorf("there are %d of %d", len(are), len(were))
		}
		return nil
	})
	b.t.Logf("%d tables are there again after %v", len(were), time.Since(began).Round(100*time.Millisecond))
	for _, pod := range pods {
		b.killContainer(pod)
	}
}

// execute runs a script in the container of a pod, and returns what it prints.
func (b *bed) execute(pod, script string) string {
	b.t.Helper()
	client := cri.NewRuntimeServiceClient(machine.Dial(b.t, containerd))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	id := b.running(ctx, client, pod)
	answer, err := client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}, Timeout: 10})
	b.do(err)
	return string(answer.GetStdout())
}

// draRing: by the table that a container of a claim has HyperDex' program computes over cables that are there.
func (b *draBed) draRing() {
	arc, three := claimSpec("lpu-4"), claimSpec("lpu")
	selectStart(arc, "== 6")
	selectStart(three, "in [2, 3, 5]")
	exactly(three)["count"] = 3
	b.submit(claim("arc", arc), claimPod("arc", "resourceClaimName", "arc"))
	if got := b.check(b.t, b.inspect("arc"), 4, true); !slices.Equal(got, []int{6, 7, 0, 1}) {
		b.t.Errorf("arc has LPUs %v", got)
	}
	b.submit(claim("three", three), claimPod("three", "resourceClaimName", "three"))
	c := b.inspect("three")
	b.check(b.t, c, 3, false)
	if err := b.server().Apart(c.ringPrint(), []int{2, 3}, []int{5}); err != nil {
		b.t.Errorf("three: %v", err)
	}
	b.boots("arc", "three")
	b.check(b.t, b.inspectAgain("arc", 1), 4, true)
	b.check(b.t, b.inspectAgain("three", 1), 3, false)
}

// exactly is the only request of a claim's spec.
func exactly(spec values) values {
	return spec["devices"].(values)["requests"].([]any)[0].(values)["exactly"].(values)
}

// selectStart makes a claim's request one for devices that begin with certain LPUs.
func selectStart(spec values, start string) {
	exactly(spec)["selectors"] = []any{values{"cel": values{"expression": `device.attributes["` + driverName + `"].start ` + start}}}
}
