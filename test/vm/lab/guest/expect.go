package guest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
)

// since waits until something holds, and returns how long after the fault it began to, 0 if before.
// holds, which is called with the lock, also returns since when it does.
func (n *Node) since(what string, holds func() (time.Time, bool)) (took time.Duration) {
	n.t.Helper()
	n.Until(what, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		at, ok := holds()
		took = max(0, at.Sub(n.fault))
		return ok
	})
	n.say("MEASURED %d ms: %s", took.Milliseconds(), what)
	return took
}

// Told waits until what the kubelet heard last of an LPU is a health.
func (n *Node) Told(c Card, health string) {
	n.t.Helper()
	n.since("the kubelet is told that "+c.ID()+" is "+health, func() (time.Time, bool) {
		for _, said := range slices.Backward(n.kubelet.told) {
			if said.id == c.ID() {
				return said.at, said.health == health
			}
		}
		return time.Time{}, false
	})
}

// Quiet wants the kubelet to hear of no change of health since the fault, but of cards that are named.
func (n *Node) Quiet(but ...Card) {
	n.t.Helper()
	n.unheard(time.Now(), ofOthers(but))
}

// QuietFor waits until a time after the fault, and wants the kubelet to have heard of no change
// by then, but of cards that are named.
func (n *Node) QuietFor(span time.Duration, but ...Card) {
	n.t.Helper()
	n.unheard(n.sleep(span), ofOthers(but))
}

// ofOthers returns what reports whether something was said of another card than these.
func ofOthers(cards []Card) func(told) bool {
	return func(said told) bool {
		return !slices.ContainsFunc(cards, func(c Card) bool { return c.ID() == said.id })
	}
}

// Never waits until a time after the fault, and wants the kubelet not to have heard of a health.
func (n *Node) Never(c Card, health string, span time.Duration) {
	n.t.Helper()
	n.unheard(n.sleep(span), func(said told) bool { return said.id == c.ID() && said.health == health })
}

// unheard wants the kubelet not to have heard something between the fault and a time.
func (n *Node) unheard(end time.Time, is func(told) bool) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, said := range n.kubelet.told {
		if said.at.After(n.fault) && said.at.Before(end) && is(said) {
			n.t.Errorf("after %d ms the kubelet is told that %s is %s, and should not be", said.at.Sub(n.fault).Milliseconds(), said.id, said.health)
		}
	}
}

// sleep waits until a time after the fault, and returns it.
func (n *Node) sleep(span time.Duration) (end time.Time) {
	n.mu.Lock()
	end = n.fault.Add(span)
	n.mu.Unlock()
	time.Sleep(time.Until(end))
	return end
}

// Preferred wants the LPUs that serve prefers to be such that it then gives them, and certain ones not to be among them.
func (n *Node) Preferred(not ...Card) {
	n.t.Helper()
	ids, err := n.preferred(slots / 2)
	n.say("preferred: %v %v", ids, err)
	if err != nil || slices.ContainsFunc(not, func(c Card) bool { return slices.Contains(ids, c.ID()) }) {
		n.t.Errorf("serve prefers %v: %v", ids, err)
	}
}

// Inventory is what `lpuctl list -o json` says.
type Inventory struct {
	LPUs     []LPU
	Rings    []struct{ DeadLinks [][2]string }
	Problems []Finding
}

// LPU is what it says of an LPU: what it reads now, and what serve has judged.
type LPU struct {
	Address string
	Usable  bool
	Verdict
	Judged Verdict
}

// Verdict is the state of an LPU, and why.
type Verdict struct {
	Health  string
	Reasons []Finding
}

// has reports whether a finding is among the reasons.
func (l *LPU) has(ids ...finding.ID) bool {
	return slices.ContainsFunc(slices.Concat(l.Reasons, l.Judged.Reasons), func(r Finding) bool { return slices.Contains(ids, r.ID) })
}

// Finding is a finding about an LPU or the node.
type Finding struct {
	ID               finding.ID
	Message, Subject string
}

// List runs `lpuctl list`.
func (n *Node) List() (list Inventory) {
	n.t.Helper()
	out, err := exec.Command("lpuctl", "list", "-o", "json").Output()
	if err != nil {
		n.t.Errorf("lpuctl list: %v", err)
	}
	n.Must(json.Unmarshal(out, &list))
	return list
}

// lists waits until list says something of an LPU.
func (n *Node) lists(what string, c Card, holds func(LPU) bool) {
	n.t.Helper()
	await.Until(n.t, "list says that "+c.Address()+" "+what, func() error {
		var lpu LPU
		for _, l := range n.List().LPUs {
			if l.Address == c.Address() {
				lpu = l
			}
		}
		if !holds(lpu) {
			return fmt.Errorf("it says %+v", lpu)
		}
		n.say("list: %+v", lpu)
		return nil
	})
}

// Finds waits until list names one of some findings about an LPU.
func (n *Node) Finds(c Card, ids ...finding.ID) {
	n.t.Helper()
	n.lists(fmt.Sprint("has ", ids), c, func(l LPU) bool { return l.has(ids...) })
}

// Well waits until list calls an LPU usable and healthy.
func (n *Node) Well(c Card) {
	n.t.Helper()
	n.lists("is well", c, func(l LPU) bool { return l.Usable && l.Health == "healthy" && l.Judged.Health != "unhealthy" })
}

// Lacks waits until list does not name a finding about an LPU.
func (n *Node) Lacks(c Card, id finding.ID) {
	n.t.Helper()
	n.lists(fmt.Sprint("has no ", id), c, func(l LPU) bool { return !l.has(id) })
}

// Warns waits until serve logs a problem of the machine. A command cannot know it: the kernel's
// counters show it by growing.
func (n *Node) Warns(subject string, id finding.ID) {
	n.t.Helper()
	says := func(line string) bool {
		return strings.Contains(line, "id="+string(id)) && strings.Contains(line, subject)
	}
	n.Until(fmt.Sprintf("serve logs %s of %s", id, subject), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.ContainsFunc(n.logged, says)
	})
}

// Run runs lpuctl to its end.
func (n *Node) Run(args ...string) {
	n.t.Helper()
	start := time.Now()
	out, err := exec.Command("lpuctl", args...).CombinedOutput()
	n.say("MEASURED %d ms: lpuctl %s: %v: %s", time.Since(start).Milliseconds(), strings.Join(args, " "), err, out)
}
