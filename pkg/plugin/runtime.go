package plugin

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// Runtime is what is known of the container runtime that the kubelet uses. The zero value is that nobody has asked. It is what
// runtimes.Answer says, in the plugin's own words: who answers the kubelet needs nothing of what asks runtimes.
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
	FailOnCDIOff  OnCDIOff = "fail"         // no LPU is offered, so that pods wait
	WarnOnCDIOff  OnCDIOff = "warn"         // the log and the metrics say so
	SpecsOnCDIOff OnCDIOff = "device-specs" // containers get nodes, mounts and variables instead of names
)

// Validate returns an error for an unknown setting.
func (o OnCDIOff) Validate() error {
	if o != FailOnCDIOff && o != WarnOnCDIOff && o != SpecsOnCDIOff {
		return fmt.Errorf("onCdiOff %q: expected %s, %s or %s", o, FailOnCDIOff, WarnOnCDIOff, SpecsOnCDIOff)
	}
	return nil
}

// withheld are the reasons why no LPU is offered, by what is known of the runtime; nobody asks where names are not used.
func (o *Options) withheld(r Runtime) finding.List {
	if o.OnCDIOff == FailOnCDIOff && r.CDI == CDIOff {
		return finding.List{*r.Reason}
	}
	return nil
}

// strategy is how a container gets its LPUs, by what is known of the runtime. It is one or the other: a runtime with CDI on that got both
// would put each node into the container twice.
func (o *Options) strategy(r Runtime) Strategy {
	if o.OnCDIOff == SpecsOnCDIOff && r.CDI == CDIOff {
		return DeviceSpecs
	}
	return o.Strategy
}

// askRuntime asks what is known of the runtime, and logs it if it is something else than before.
func (p *Plugin) askRuntime(options *Options) {
	if options.Strategy != CDI || p.Runtime == nil {
		p.runtime, p.runtimeSaid = Runtime{}, ""
		return
	}
	if host.Spare() != nil { // what could be read now says nothing
		return
	}
	p.runtime = p.Runtime()
	said, level, attributes := options.cdiMessage(p.runtime.CDI), slog.LevelInfo, []any{}
	if why := p.runtime.Reason; why != nil {
		attributes = []any{"id", why.ID, "reason", why.Message, "remedy", why.Remedy}
		if why.Severity != finding.Note {
			level = slog.LevelWarn
		}
	}
	if all := fmt.Sprint(said, attributes); all != p.runtimeSaid {
		p.runtimeSaid = all
		p.log.Log(context.Background(), level, said, attributes...)
	}
}

// cdiMessage says what the state of CDI means for those who get LPUs.
func (o *Options) cdiMessage(s CDIState) string {
	switch {
	case s == CDIOn:
		return "the container runtime has CDI on"
	case s != CDIOff:
		return "it is not known whether the container runtime has CDI on; LPUs are handed out as if it had"
	case o.OnCDIOff == FailOnCDIOff:
		return "the container runtime has CDI off; no LPU is offered meanwhile"
	case o.OnCDIOff == SpecsOnCDIOff:
		return "the container runtime has CDI off; new containers get nodes, mounts and variables instead of names"
	}
	return "the container runtime has CDI off; containers start without their LPUs"
}

// metric has a sample for each state, so that none comes or goes.
func (s CDIState) metric() *node.Metric {
	m := node.NewMetric("gauge", "lpuctl_runtime_cdi",
		"Whether the container runtime of the kubelet has CDI on, by the latest self-check of the node: 1 for the answer that holds.")
	for _, state := range []CDIState{CDIOn, CDIOff, CDIUnknown} {
		m.SetBool(state == s, "answer", string(state))
	}
	return m
}
