package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// claimRecords are the records of prepared claims.
const claimRecords = nodeRoot + "/var/lib/lpuctl/dra-claims/*.json"

// lose removes the records and the CDI files of all claims.
func (b *draBed) lose() {
	b.t.Helper()
	for _, pattern := range []string{claimRecords, claimFiles} {
		files, err := filepath.Glob(pattern)
		if b.do(err); len(files) == 0 {
			b.t.Errorf("there is no %s to lose", pattern)
		}
		for _, f := range files {
			b.do(os.Remove(f))
		}
	}
}

// newDraining starts a node whose owner is the plugin, with the driver and a pod that has a claim of four LPUs.
func newDraining(t *testing.T) (b *draBed, four []int) {
	t.Helper()
	b = newDRA(t)
	b.start()
	b.waitReady(listen)
	b.waitPublished()
	b.withPolicies("lpu-extended-resources.hyperaccel.ai", false) // pods get LPUs of the plugin as ever
	four = b.claimed("kept", 4)
	return b, four
}

// TestDRALostClaims: while the driver drains, all that is written of a claim is lost. No pod of the
// plugin gets its LPUs, the driver writes it again, and without a driver the kubelet's word is enough.
func TestDRALostClaims(t *testing.T) {
	b, four := newDraining(t)
	b.own("plugin")
	b.serve("--listen", "127.0.0.1:9480")
	b.waitAllocatable(4)
	b.submit(podManifest("eight", 8))
	b.waitUnscheduled("eight")
	b.lose()
	lost := time.Now()
	await.Until(t, "record and CDI file are there again", func() error {
		for _, pattern := range []string{claimRecords, claimFiles} {
			if files, _ := filepath.Glob(pattern); len(files) != 1 { // fails on a bad pattern only
				return fmt.Errorf("%s: %v", pattern, files)
			}
		}
		return nil
	})
	t.Logf("they are there after %v", time.Since(lost).Round(10*time.Millisecond))
	b.again("kept", 1, four)

	b.driver.Stop(unix.SIGKILL)
	b.lose()
	time.Sleep(9 * time.Second) // serve has looked twice meanwhile
	b.waitAllocatable(4)
	if p, err := b.podOfName("eight"); err != nil || p.Status.Phase != "Pending" || len(p.Status.ContainerStatuses) > 0 {
		t.Errorf("the pod that asks for all LPUs is %+v, %v", p, err)
	}
	b.release("eight")
	b.submit(podManifest("rest", 4))
	rest := b.check(t, b.inspect("rest"), 4, true)
	if slices.ContainsFunc(rest, func(lpu int) bool { return slices.Contains(four, lpu) }) {
		t.Errorf("LPUs %v were given to a pod, and a claim has %v", rest, four)
	}
	out := machine.Output(t, os.Getenv("DRA"), "--root", nodeRoot, "claims")
	if !strings.Contains(out, "default/kept") {
		t.Errorf("claims: %s", out)
	}
	b.start()
	b.waitClaimFiles(1)
	b.again("kept", 2, four)
	b.release("rest", "kept")
	b.waitClaimFiles(0)
	b.waitAllocatable(8)
}

// TestDRABesidePrevious: a serve of the release before knows neither owner nor claims. What it gives away of a
// claim's cannot be prevented, and is said, with the pods and what to do.
func TestDRABesidePrevious(t *testing.T) {
	previous := os.Getenv("PREVIOUS") + "/source/bin/lpuctl"
	need(t, previous)
	b, four := newDraining(t)
	old := machine.Start(t, previous, "serve", "--root", nodeRoot, "--listen", "127.0.0.1:9480")
	b.waitAllocatable(8)
	twice := func() int { return b.metric("http://"+listen+"/metrics", "lpuctl_lpus_given_twice") }
	waitTwice := func(want int) {
		t.Helper()
		began := time.Now()
		await.Until(t, fmt.Sprintf("%d LPUs are said to be given twice", want), func() error {
			if n := twice(); n != want {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		t.Logf("%d LPUs are said to be given twice after %v", want, time.Since(began).Round(10*time.Millisecond))
	}
	all := podManifest("all", 8)
	all["spec"].(map[string]any)["nodeName"] = nodeName // a scheduler that has not heard of the plugin takes DRA's LPUs
	b.submit(all)
	b.check(t, b.inspect("all"), 8, true)
	waitTwice(4)
	b.waitPublished(0, 1, 2, 3, 4, 5, 6, 7)
	if said := b.driver.Said(5000); !strings.Contains(said, "an LPU is given twice") || !strings.Contains(said, "id=given-twice") {
		t.Errorf("the driver says %s", said)
	}
	for _, words := range []string{"pod default/all has it by the device plugin", "kubectl --namespace default delete pod all"} {
		if said := b.driver.Said(5000); !strings.Contains(said, words) {
			t.Errorf("the driver does not say %q: %s", words, said)
		}
	}
	b.release("all") // as it says
	waitTwice(0)

	old.Stop(unix.SIGTERM)
	b.release("kept")
	b.waitPublished()
	if got := b.claimed("after", 4); len(got) != len(four) {
		t.Errorf("%v", got)
	}
	b.release("after")
}
