package node

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Runtime is what is known of the container runtime that the kubelet uses. The zero value
// is that no one has asked. It is what runtimes.Answer says, in the words of those who
// hand out LPUs: they need nothing of what asks runtimes.
type Runtime struct {
	CDI    CDIState
	Reason *finding.Finding // why it is not on; nil if it is
}

// CDIState is what the runtime does with names of CDI devices.
type CDIState string

// The states.
const (
	CDIOn      CDIState = "on"
	CDIOff     CDIState = "off" // containers start without the device
	CDIUnknown CDIState = "unknown"
)

// OnCDIOff is what is done while the container runtime has CDI off.
type OnCDIOff string

// The settings.
const (
	FailOnCDIOff OnCDIOff = "fail" // no LPU is offered, so that pods wait
	WarnOnCDIOff OnCDIOff = "warn" // the log and the metrics say so
	// SpecsOnCDIOff is of the device plugin only: containers get nodes, mounts and variables
	// instead of names.
	SpecsOnCDIOff OnCDIOff = "device-specs"
)

// Validate returns an error for an unknown setting.
func (o OnCDIOff) Validate() error {
	if o != FailOnCDIOff && o != WarnOnCDIOff && o != SpecsOnCDIOff {
		return fmt.Errorf("onCdiOff %q: expected %s, %s or %s", o, FailOnCDIOff, WarnOnCDIOff, SpecsOnCDIOff)
	}
	return nil
}

// Withheld are the reasons why no LPU is offered, by what is known of the runtime.
func (r Runtime) Withheld(on OnCDIOff) finding.List {
	if on == FailOnCDIOff && r.CDI == CDIOff {
		return finding.List{*r.Reason}
	}
	return nil
}

// Says says what is known of the runtime to those who get LPUs, in a few words.
func (r Runtime) Says(on OnCDIOff) string {
	switch {
	case r.CDI == CDIOn:
		return "the container runtime has CDI on"
	case r.CDI != CDIOff:
		return "it is not known whether the container runtime has CDI on; LPUs are handed out as if it had"
	case on == FailOnCDIOff:
		return "the container runtime has CDI off; no LPU is offered meanwhile"
	case on == SpecsOnCDIOff:
		return "the container runtime has CDI off; new containers get nodes, mounts and variables instead of names"
	}
	return "the container runtime has CDI off; containers start without their LPUs"
}

// AskRuntime asks [Node.Runtime], logs what it says if that is something else than
// before, and withholds the LPUs from the next Update on while the setting wants that. It
// is called by the caller of Update, before it.
func (n *Node) AskRuntime(on OnCDIOff) Runtime {
	if n.Runtime == nil {
		return n.ForgetRuntime()
	}
	if host.Spare() != nil { // what could be read now says nothing
		return n.runtime
	}
	r := n.Runtime()
	n.runtime = r
	n.withheld = r.Withheld(on)
	said, level, attributes := r.Says(on), slog.LevelInfo, []any{}
	if why := r.Reason; why != nil {
		attributes = []any{"id", why.ID, "reason", why.Message, "remedy", why.Remedy}
		if why.Severity != finding.Note {
			level = slog.LevelWarn
		}
	}
	if all := fmt.Sprint(said, attributes); all != n.runtimeSaid {
		n.runtimeSaid = all
		n.log.Log(context.Background(), level, said, attributes...)
	}
	return r
}

// ForgetRuntime is AskRuntime of one who does not hand out names of CDI devices: none is
// asked, and nothing withheld.
func (n *Node) ForgetRuntime() Runtime {
	n.runtime, n.runtimeSaid = Runtime{}, ""
	n.withheld = nil
	return n.runtime
}

// Metric has a sample for each state, so that none comes or goes.
func (s CDIState) Metric() *Metric {
	m := NewMetric("gauge", "lpuctl_runtime_cdi",
		"Whether the container runtime of the kubelet has CDI on, by the latest self-check of the node: 1 for the answer that holds.")
	for _, state := range []CDIState{CDIOn, CDIOff, CDIUnknown} {
		m.SetBool(state == s, "answer", string(state))
	}
	return m
}
