package guest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// since wants something to hold, in time since the fault. holds, which is called with the lock, also says since when it does.
func (n *Node) since(what string, limit time.Duration, holds func() (time.Time, bool)) {
	n.t.Helper()
	var took time.Duration
	if !n.within(limit+5*time.Second, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		at, ok := holds()
		took = max(0, at.Sub(n.fault))
		return ok
	}) {
		n.t.Errorf("not so: %s", what)
		return
	}
	n.say("MEASURED %d ms (limit %d): %s", took.Milliseconds(), limit.Milliseconds(), what)
	if took > limit {
		n.t.Errorf("so after %d ms, not within %d ms: %s", took.Milliseconds(), limit.Milliseconds(), what)
	}
}

// Told wants the kubelet to have been told of an LPU's health, in time since the fault.
func (n *Node) Told(c Card, health string, limit time.Duration) {
	n.t.Helper()
	n.since("the kubelet is told that "+c.ID()+" is "+health, limit, func() (time.Time, bool) {
		for _, said := range slices.Backward(n.kubelet.told) {
			if said.id == c.ID() {
				return said.at, said.health == health
			}
		}
		return time.Time{}, false
	})
}

// Quiet wants the kubelet to hear of no change of health until a time after the fault, but of cards that are named.
func (n *Node) Quiet(until time.Duration, but ...Card) {
	n.t.Helper()
	n.sleep(until)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, said := range n.kubelet.told {
		isNamed := slices.ContainsFunc(but, func(c Card) bool { return c.ID() == said.id })
		if said.at.After(n.fault) && !isNamed {
			n.t.Errorf("after %d ms the kubelet is told that %s is %s, and should not be", said.at.Sub(n.fault).Milliseconds(), said.id, said.health)
		}
	}
}

// Never wants the kubelet not to be told of a health until a time after the fault.
func (n *Node) Never(c Card, health string, until time.Duration) {
	n.t.Helper()
	n.sleep(until)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, said := range n.kubelet.told {
		if said.at.After(n.fault) && said.id == c.ID() && said.health == health {
			n.t.Errorf("after %d ms the kubelet is told that %s is %s, and should not be", said.at.Sub(n.fault).Milliseconds(), said.id, said.health)
		}
	}
}

// sleep waits until a time after the fault.
func (n *Node) sleep(until time.Duration) {
	n.mu.Lock()
	fault := n.fault
	n.mu.Unlock()
	time.Sleep(time.Until(fault.Add(until)))
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

// has tells whether a finding is among the reasons.
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

// lists wants list to say something of an LPU in time, from now on: a process of its own takes as long as it takes.
func (n *Node) lists(what string, c Card, limit time.Duration, holds func(LPU) bool) {
	n.t.Helper()
	var lpu LPU
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		for _, l := range n.List().LPUs {
			if l.Address == c.Address() {
				lpu = l
			}
		}
		if holds(lpu) {
			n.say("list: %+v", lpu)
			return
		}
		if time.Since(start) > limit {
			n.t.Errorf("list does not say: %s, but: %+v", what, lpu)
			return
		}
	}
}

// Finds wants list to name one of some findings about an LPU.
func (n *Node) Finds(c Card, limit time.Duration, ids ...finding.ID) {
	n.t.Helper()
	n.lists(fmt.Sprint(c.Address(), " has ", ids), c, limit, func(l LPU) bool { return l.has(ids...) })
}

// Well wants list to call an LPU usable and healthy.
func (n *Node) Well(c Card, limit time.Duration) {
	n.t.Helper()
	n.lists(c.Address()+" is well", c, limit, func(l LPU) bool { return l.Usable && l.Health == "healthy" && l.Judged.Health != "unhealthy" })
}

// Lacks wants list not to name a finding about an LPU.
func (n *Node) Lacks(c Card, limit time.Duration, id finding.ID) {
	n.t.Helper()
	n.lists(fmt.Sprint(c.Address(), " has no ", id), c, limit, func(l LPU) bool { return !l.has(id) })
}

// Warns wants serve to log a problem of the machine in time. A command cannot know it, because it is told by counters that grow.
func (n *Node) Warns(subject string, limit time.Duration, id finding.ID) {
	n.t.Helper()
	says := func(line string) bool {
		return strings.Contains(line, "id="+string(id)) && strings.Contains(line, subject)
	}
	logged := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.ContainsFunc(n.logged, says)
	}
	if !n.within(limit, logged) {
		n.t.Errorf("serve does not log %s of %s", id, subject)
	}
}

// Run runs lpuctl, which has to end in time with one of some exit codes.
func (n *Node) Run(limit time.Duration, args ...string) {
	n.t.Helper()
	start := time.Now()
	out, err := exec.Command("lpuctl", args...).CombinedOutput()
	took := time.Since(start)
	n.say("MEASURED %d ms (limit %d): lpuctl %s: %v: %s", took.Milliseconds(), limit.Milliseconds(), strings.Join(args, " "), err, out)
	if took > limit {
		n.t.Errorf("lpuctl %s takes %d ms, not %d", strings.Join(args, " "), took.Milliseconds(), limit.Milliseconds())
	}
}
