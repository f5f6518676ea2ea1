package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// wipe removes all CDI files and ring tables, as a reboot does: they are in memory.
func (b *draBed) wipe() {
	b.t.Helper()
	files, err := filepath.Glob("/run/cdi/*")
	b.do(err)
	for _, f := range files {
		b.do(os.Remove(f))
	}
	b.emptyTables()
}

// again kills the container of a pod, and checks that the next one has the same LPUs.
func (b *draBed) again(pod string, restarts int, lpus []int) {
	b.t.Helper()
	b.killContainer(pod)
	if got := b.check(b.t, b.inspectAgain(pod, restarts), len(lpus), true); !slices.Equal(got, lpus) {
		b.t.Errorf("%s has LPUs %v after a restart, had %v", pod, got, lpus)
	}
}

// draKilled: what the kubelet had prepared is there again when a new driver is ready, or when the one that runs finds it missing. The
// kubelet does not ask for it again.
func (b *draBed) draKilled() {
	four := b.claimed("claim", 4)
	b.submit(podManifest("extended", 1))
	one := b.check(b.t, b.inspect("extended"), 1, true)
	b.driver.Stop(unix.SIGKILL)
	b.wipe()
	b.start()
	b.waitReady(listen)
	b.waitClaimFiles(2)
	b.again("claim", 1, four)
	b.again("extended", 1, one)
	b.wipe()
	b.waitClaimFiles(2)
	b.again("claim", 2, four)
}

// draForced: a claim that goes while neither the driver nor the kubelet can know, and with it all that the kubelet remembers, holds
// nothing afterwards.
func (b *draBed) draForced() {
	b.claimed("forced", 8)
	b.kubelet.Stop(unix.SIGTERM)
	b.driver.Stop(unix.SIGKILL)
	b.do(os.Remove("/var/lib/kubelet/dra_manager_state"))
	_, err := kubectl("", "delete", "pod", "forced", "--force", "--grace-period", "0")
	b.do(err)
	claim := path("ResourceClaim") + "/forced"
	b.do(ask(http.MethodPatch, claim, values{"metadata": values{"finalizers": nil}}, nil))
	b.do(ask(http.MethodDelete, claim, nil, nil))
	await.Until(b.t, "the claim is gone", func() error {
		if err := ask(http.MethodGet, claim, nil, nil); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	b.startKubeletAgain()
	b.start()
	b.claimed("next", 8)
	b.waitClaimFiles(1)
}

// startKubeletAgain starts a kubelet that outlives the part.
func (b *draBed) startKubeletAgain() {
	b.t.Helper()
	part := b.t
	b.t = b.whole
	b.startKubelet()
	b.t = part
}

// draKubelet: a kubelet that was restarted finds the driver, and pods keep what they have.
func (b *draBed) draKubelet() {
	two := b.claimed("before", 2)
	b.kubelet.Stop(unix.SIGTERM)
	b.startKubeletAgain()
	b.waitPublished() // a kubelet that starts deletes the slices of its node
	b.claimed("after", 4)
	if p, err := b.podOfName("before"); err != nil || p.Status.ContainerStatuses[0].RestartCount != 0 {
		b.t.Errorf("the pod that was there before is not as it was: %+v %v", p.Status, err)
	}
	b.again("before", 1, two)
}

// draInstances: a new driver is started before the old one is told to end, three times. At no moment a claim waits for a driver, or a slice
// is missing; what one has prepared another one releases.
func (b *draBed) draInstances() {
	uids := func() []string {
		all, err := b.slices()
		b.do(err)
		var uids []string
		for _, s := range all {
			uids = append(uids, s.Metadata.UID)
		}
		return uids
	}
	before := uids()
	used := map[int]bool{}
	for i, uid := range []string{"second", "third", "fourth"} {
		old := b.driver
		next := fmt.Sprintf("127.0.0.1:%d", 9478+i)
		b.startAs(uid, next)
		b.waitReady(next)
		name := fmt.Sprintf("pod%d", i)
		b.submitClaimed(name, 1)
		old.Stop(unix.SIGTERM)
		used[b.check(b.t, b.inspect(name), 1, true)[0]] = true
	}
	if len(used) != 3 {
		b.t.Errorf("LPUs are given twice: three pods have %v", slices.Collect(maps.Keys(used)))
	}
	if after := uids(); !slices.Equal(before, after) {
		b.t.Errorf("the slices were made anew: %v, before %v", after, before)
	}
	b.clean()
	b.waitClaimFiles(0)
	last := b.driver
	b.start()
	b.waitReady(listen)
	last.Stop(unix.SIGTERM)
}

// draAPIServer: while the API server does not answer, a driver that is started anew brings back what containers need, and goes on when it
// does.
func (b *draBed) draAPIServer() {
	two := b.claimed("away", 2)
	b.do(unix.Kill(b.apiServer.PID(), unix.SIGSTOP))
	defer func() { b.do(unix.Kill(b.apiServer.PID(), unix.SIGCONT)) }()
	b.driver.Stop(unix.SIGKILL)
	b.wipe()
	b.start()
	b.waitClaimFiles(1)
	b.again("away", 1, two)
	b.do(unix.Kill(b.apiServer.PID(), unix.SIGCONT))
	b.waitPublished()
	b.claimed("back", 4)
}

// draNodeAnew: when a node is deleted its slices go with it. When there is one of the same name again they are back, and belong to it.
func (b *draBed) draNodeAnew() {
	_, err := kubectl("", "delete", "node", nodeName)
	b.do(err)
	b.kubelet.Stop(unix.SIGTERM)
	b.startKubeletAgain()
	var node struct{ Metadata struct{ UID string } }
	await.Until(b.t, "there is a node", func() error {
		return ask(http.MethodGet, "/api/v1/nodes/"+nodeName, nil, &node)
	})
	began := time.Now()
	await.Until(b.t, "the slices are those of the new node", func() error {
		all, err := b.slices()
		for _, s := range all {
			if owners := s.Metadata.OwnerReferences; len(owners) != 1 || owners[0].UID != node.Metadata.UID {
				err = errors.Join(err, fmt.Errorf("%s belongs to %v", s.Metadata.Name, owners))
			}
		}
		if len(all) == 0 {
			err = errors.Join(err, errors.New("there are none"))
		}
		return err
	})
	b.t.Logf("they are there %v after the node", time.Since(began).Round(100*time.Millisecond))
	b.waitPublished()
	b.claimed("anew", 2)
}

// withPolicies applies or deletes the policies of a name, with their bindings.
func (b *draBed) withPolicies(name string, on bool) {
	b.t.Helper()
	policies := slices.DeleteFunc(render(b.t, modeDRA()), func(o values) bool {
		return !strings.Contains(o["kind"].(string), "AdmissionPolicy") || o["metadata"].(values)["name"] != name
	})
	if on {
		b.apply(policies...)
		return
	}
	list := listOf(b.t, policies)
	_, err := kubectl(list, "delete", "-f", "-")
	b.do(err)
}

// draOwner takes the node from the driver to the plugin, and back, with pods that run: nobody gets an LPU that another one has.
func (b *draBed) draOwner() {
	// Without the chart's policies pods get LPUs of the plugin as ever.
	b.withPolicies("lpu-extended-resources.hyperaccel.ai", false)
	claimTimes := b.startTimes(func(name string) values {
		b.submit(claim(name, claimSpec(class(1))))
		return claimPod(name, "resourceClaimName", name)
	})
	b.clean()
	kept := b.claimed("kept", 2)

	b.own("plugin")
	plugin := b.serve("--listen", "127.0.0.1:9480")
	b.waitAllocatable(6)
	b.waitPublished(0, 1, 2, 3, 4, 5, 6, 7)
	b.submit(podManifest("rest", 6))
	rest := b.check(b.t, b.inspect("rest"), 6, true)
	if slices.ContainsFunc(rest, func(lpu int) bool { return slices.Contains(kept, lpu) }) {
		b.t.Errorf("the plugin gives LPUs %v, of which a claim has %v", rest, kept)
	}
	b.release("kept")
	b.waitAllocatable(8)
	b.release("rest")
	podTimes := b.startTimes(func(name string) values { return podManifest(name, 1) })
	b.compare(claimTimes, podTimes)
	b.clean()
	b.secureByPlugin()
	b.clean()

	// All LPUs are given, and a pod waits for one. It must not have one of another pod's because the plugin is gone for a moment, nor
	// because it does not own the node any more.
	b.submit(podManifest("six", 6))
	six := b.check(b.t, b.inspect("six"), 6, true)
	b.submit(podManifest("two", 2))
	two := b.check(b.t, b.inspect("two"), 2, true)
	b.submit(podManifest("waiting", 1))
	b.waitUnscheduled("waiting")
	plugin.Stop(unix.SIGKILL)
	waitJSON(b.t, "node/"+nodeName, `.status.allocatable.hyperaccel\.ai/lpu`, "0")
	plugin = b.serve("--listen", "127.0.0.1:9480")
	b.waitAllocatable(8)
	b.own("dra")
	b.waitAllocatable(0)
	time.Sleep(7 * time.Second) // the driver may give nothing for the first five
	if p, err := b.podOfName("waiting"); err != nil || p.Status.Phase != "Pending" || len(p.Status.ContainerStatuses) > 0 {
		b.t.Errorf("the pod that waits is %+v, %v", p, err)
	}
	b.release("two")
	lpu := b.check(b.t, b.inspect("waiting"), 1, true)[0]
	if !slices.Contains(two, lpu) {
		b.t.Errorf("the waiting pod got LPU %d when %v were free, and %v not", lpu, two, six)
	}
	b.release("six", "waiting")
	b.waitPublished()
	b.draAllocated(plugin)
	b.withPolicies("lpu-extended-resources.hyperaccel.ai", true)
}

// compare compares how long pods took to start. The shortest of each is what a busy machine disturbs least.
func (b *draBed) compare(byClaim, byPlugin []time.Duration) {
	b.t.Helper()
	ratio := float64(byClaim[0]) / float64(byPlugin[0])
	b.t.Logf("from the creation of a pod to its first words: by a claim %v (median %v), by the plugin %v (median %v), %.2f times",
		byClaim[0].Round(time.Millisecond), byClaim[3].Round(time.Millisecond),
		byPlugin[0].Round(time.Millisecond), byPlugin[3].Round(time.Millisecond), ratio)
	if ratio > 2 || long() && ratio > 1.25 {
		b.t.Error("that is more than 1.25 times, or even 2 times on a machine that does other things too")
	}
}

// draAllocated: a claim was given LPUs, but is not prepared yet, when the node changes over to the plugin, which gives them to a pod. The
// claim's pod is refused, and says why, until the node is the driver's again and they are free.
func (b *draBed) draAllocated(plugin *machine.Daemon) {
	b.driver.Stop(unix.SIGKILL)
	b.submitClaimed("allocated", 8)
	b.waitEvent("allocated", driverName) // the kubelet misses the driver
	b.own("plugin")
	b.waitAllocatable(8)
	b.submit(podManifest("quick", 2))
	b.check(b.t, b.inspect("quick"), 2, true)
	b.start()
	b.waitReady(listen)
	b.waitEvent("allocated", "handed out by the device plugin")
	b.own("dra")
	b.waitEvent("allocated", "default/quick")
	b.release("quick")
	b.check(b.t, b.inspect("allocated"), 8, true)
	plugin.Stop(unix.SIGTERM)
}
