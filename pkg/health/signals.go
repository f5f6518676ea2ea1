package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Class says how a signal counts over time.
type Class string

// The classes of signals.
const (
	// Now leaves no doubt: it makes an LPU unhealthy at once.
	Now Class = "now"
	// Confirmed makes an LPU unhealthy when it was read Policy.BadReadings times in a
	// row.
	Confirmed Class = "confirmed"
	// Passing may pass by itself: the state of the LPU is unknown until a grace ends.
	Passing Class = "passing"
	// Counter is a counter that grew: the LPU is unhealthy until it has not grown for
	// Policy.CounterQuiet.
	Counter Class = "counter"
	// Latched was reported by an event, and stays until the driver is bound again, or for
	// Policy.CounterQuiet if it is a warning.
	Latched Class = "latched"
	// Hint never changes the state.
	Hint Class = "hint"
)

// Signal is one thing that the health of an LPU is judged by. What it says is a finding
// of the same id.
type Signal struct {
	ID    finding.ID
	Class Class
	// Source is where it is read: files relative to sys/bus/pci/devices/ADDRESS, or the
	// event that tells it.
	Source string
}

// Signals are all signals. An error that is not among them is of the class Confirmed.
func Signals() []Signal { return signals[:] }

//nolint:gochecknoglobals // never changed; Go has no constant arrays
var signals = [...]Signal{
	{finding.Absent, Now, "the ring table"},
	{finding.AERCorrectable, Hint, "aer_dev_correctable"},
	{finding.AERFatal, Counter, "aer_dev_fatal"},
	{finding.AERNonFatal, Hint, "aer_dev_nonfatal"},
	{finding.AmbiguousModel, Now, "the config file"},
	{finding.Asleep, Hint, "power/runtime_status"},
	{finding.BadNode, Now, "the class device"},
	{finding.BadState, Confirmed, "device_bad_state (xocl), ha/haN/state (ha)"},
	{finding.ECCUncorrectable, Counter, "mig.u.N/ecc_ue_cnt (xocl), ha/haN/errors_uncorrectable (ha)"},
	{finding.Firewall, Confirmed, "firewall.u.N/status (xocl)"},
	{finding.Gone, Now, "the directory itself"},
	{finding.Hot, Hint, "hwmon/hwmonN/tempN_input, tempN_crit"},
	{finding.InRecovery, Passing, "uevent with ERROR_EVENT=BEGIN_RECOVERY"},
	{finding.LinkDegraded, Hint, "current_link_speed, current_link_width"},
	{finding.NoAnswer, Passing, "current_link_width; config where there is none"},
	{finding.NoDriver, Now, "driver"},
	{finding.NoHostMemory, Hint, "host_mem_size (xocl)"},
	{finding.NoNode, Now, "the class device"},
	{finding.NodeForeign, Now, "sys/dev/char"},
	{finding.NodeMismatch, Now, "/dev, sys/dev/char"},
	{finding.NodeMissing, Now, "/dev"},
	{finding.NotCalibrated, Confirmed, "mig_calibration, xclbinuuid (xocl)"},
	{finding.NotReady, Passing, "ready (xocl)"},
	{finding.Offline, Passing, "dev_offline (xocl), ha/haN/state (ha)"},
	{finding.PassedThrough, Now, "driver"},
	{finding.PowerLost, Now, "power_state, power/runtime_status"},
	{finding.ReadStalled, Passing, "any read"},
	{finding.Rebound, Latched, "uevents bind and unbind"},
	{finding.Recovered, Latched, "uevent with ERROR_EVENT=SUCCESSFUL_RECOVERY"},
	{finding.RecoveryFailed, Latched, "uevent with ERROR_EVENT=FAILED_RECOVERY"},
	{finding.RecoveryShell, Confirmed, "rom.u.N/VBNV, recovery of the management function (xocl)"},
	{finding.ResetBehindDriver, Confirmed, "config, enable"},
	{finding.SharedNode, Now, "the class device"},
	{finding.WrongDriver, Now, "driver"},
}

// classOf is how an error or a warning counts.
func classOf(f finding.Finding) Class {
	if f.Severity != finding.Error {
		return Hint
	}
	i := slices.IndexFunc(signals[:], func(s Signal) bool { return s.ID == f.ID })
	if i < 0 || signals[i].Class == Hint { // which is an error by policy
		return Confirmed
	}
	return signals[i].Class
}

// StateOf is the state that the reasons of one reading show by themselves. It is unknown
// if all that is wrong may pass.
func StateOf(reasons finding.List) State {
	state := Healthy
	for _, f := range reasons {
		switch classOf(f) {
		case Hint:
		case Passing:
			state = Unknown
		default:
			return Unhealthy
		}
	}
	return state
}

// graceOf is how long a passing signal may last before the LPU is unhealthy.
func (p *Policy) graceOf(id finding.ID) time.Duration {
	if id == finding.NoAnswer {
		return p.ResetGrace
	}
	return p.Grace
}

// Reading is what was read of one LPU at one moment. What was not read, or what the card
// does not have, is nil or zero, and nothing is judged by it. Comments name files
// relative to sys/bus/pci/devices/ADDRESS.
type Reading struct {
	// Reasons are the findings of the reading so far: those of discovery, and those of
	// Findings.
	Reasons finding.List

	Device uint64 // inode of the directory itself: another one is another device at the same address
	Driver string // driver: last element of the link; "" if none is bound
	// AllOnes: current_link_width is 63, or config begins with all ones: the card does not
	// answer.
	AllOnes bool
	Linked  bool // there is a file current_link_width
	Link    Link // current_link_speed, current_link_width
	MaxLink Link // max_link_speed, max_link_width; less if those of the port above are less

	Nodes []string // paths of its device nodes

	// Ports are those above it, from the root port down: elements of the device path.
	Ports         []pci.Address
	PowerState    string  // power_state: "D0", "D3cold", "error", ...
	RuntimeStatus string  // power/runtime_status: "active", "suspended", "unsupported", ...
	Command       *uint16 // config, bytes 4 and 5: the command register
	Enabled       int     // enable: how often drivers have enabled the function

	AERCorrectable *uint64 // aer_dev_correctable, TOTAL_ERR_COR
	AERNonFatal    *uint64 // aer_dev_nonfatal, TOTAL_ERR_NONFATAL
	AERFatal       *uint64 // aer_dev_fatal, TOTAL_ERR_FATAL

	BadState   bool    // device_bad_state is not 0 (xocl), or ha/haN/state is failed (ha)
	HostMemory *uint64 // host_mem_size, bytes (xocl)
	// Sensors are what the driver has to ask the card for. nil: it was not asked.
	Sensors *Sensors
}

// Sensors are what a driver may have to ask the card for, so that reading them can take
// long. A field without a value is nil.
type Sensors struct {
	// Firewall is firewall.u.N/status (xocl), a bit for each error by which it has tripped,
	// see HW-22.
	Firewall   uint64
	Loaded     bool  // xclbinuuid is not all zeros (xocl): a bitstream is loaded
	Calibrated *bool // mig_calibration is not 0 (xocl)
	// ECC is the uncorrectable errors of the memory: mig.u.N/ecc_ue_cnt, summed (xocl), or
	// ha/haN/errors_uncorrectable (ha).
	ECC          *uint64
	Temperatures []Temperature
	Watts        *float64 // hwmon/hwmonN/powerN_input, the first that there is; microwatts there
	// LimitWatts is powerN_crit of the same sensor or, where there is none, powerN_max; nil
	// if there is neither.
	LimitWatts *float64
	// Unread are warnings about attributes that could not be read.
	Unread finding.List
}

// Link is a PCI Express link. A field is 0 if it is not known.
type Link struct {
	SpeedGTs float64 // gigatransfers per second
	Width    int     // lanes
}

// Temperature is one sensor.
type Temperature struct {
	Label   string  `json:"label"`   // hwmon/hwmonN/tempN_label: "FPGA TEMP"
	Celsius float64 `json:"celsius"` // hwmon/hwmonN/tempN_input, thousandths there
	// Critical is hwmon/hwmonN/tempN_crit, thousandths there; 0 if there is none.
	Critical float64 `json:"critical,omitempty"`
	// Max is hwmon/hwmonN/tempN_max, thousandths there; 0 if there is none.
	Max float64 `json:"max,omitempty"`
}

// Limit returns the degrees up to which the sensor's own driver counts the card as in
// order: Critical or, where there is none, Max; 0 if there is neither.
func (t Temperature) Limit() float64 { return cmp.Or(t.Critical, t.Max) }

// memorySpace is the bit of the command register by which a function answers to its
// memory (PCI Local Bus Specification 3.0, 6.2.2).
const memorySpace = 1 << 1

// MemoryOff reports whether a command register says that the function does not answer to
// its memory; nil: it was not read.
func MemoryOff(command *uint16) bool { return command != nil && *command&memorySpace == 0 }

// PowerLost reports whether the kernel calls the function active though it has no power.
func (r *Reading) PowerLost() bool {
	return r.RuntimeStatus == "active" && (r.PowerState == "D3cold" || r.PowerState == "error")
}

// Asleep reports whether the kernel has put the function to sleep. Reading it would wake
// it.
func (r *Reading) Asleep() bool {
	return r.RuntimeStatus == "suspended" || r.RuntimeStatus == "suspending"
}

// Findings are what the reading shows without any history. subject is the name of the
// LPU.
func (r *Reading) Findings(subject string, p *Policy) (all finding.List) {
	add := func(bad bool, id finding.ID, message string) {
		if bad {
			all.Add(id, subject, message, "")
		}
	}
	add(r.Asleep(), finding.Asleep, "the kernel has put it to sleep (power/runtime_status is suspended); its driver wakes it when it is used")
	add(r.AllOnes && !r.PowerLost(), finding.NoAnswer, "it does not answer on the PCI bus (reads as all ones): it is in a reset, or dead")
	add(r.PowerLost(), finding.PowerLost, "it has lost power: the kernel calls it active, and its power state is "+r.PowerState)
	add(MemoryOff(r.Command) && r.Driver != "" && r.Enabled > 0 && !r.AllOnes, finding.ResetBehindDriver,
		"it was reset behind its driver: its memory is switched off in the command register")
	add(r.BadState, finding.BadState, "its driver says that it is in a bad state")
	add(r.HostMemory != nil && *r.HostMemory == 0, finding.NoHostMemory, "it has no host memory (host_mem_size is 0)")
	add(r.Link.Width > 0 && r.Link.Width < r.MaxLink.Width, finding.LinkDegraded,
		fmt.Sprintf("its link is x%d of x%d: card and slot have more lanes", r.Link.Width, r.MaxLink.Width))
	addTotal(&all, finding.AERFatal, subject, r.AERFatal, 0, "fatal %s on the PCI bus",
		"see dmesg; look at the results of its jobs since then; if it counts more, replace the card (the counter begins at 0 with the next boot)")
	addTotal(&all, finding.AERNonFatal, subject, r.AERNonFatal, p.NonFatalErrors, "%s on the PCI bus that the hardware did not correct",
		"see dmesg; look at the results of its jobs since then; if it counts more, reseat the card (the counter begins at 0 with the next boot)")
	return append(all, r.Sensors.Findings(subject, p)...)
}

// addTotal adds a warning about a counter that shows more than a limit. It says nothing
// of when that was, so the card can be in order again.
func addTotal(all *finding.List, id finding.ID, subject string, count *uint64, limit uint64, what, remedy string) {
	if count == nil || *count <= limit {
		return
	}
	errors := "errors"
	if *count == 1 {
		errors = "error"
	}
	all.Add(id, subject, fmt.Sprintf("it has counted %d "+what, *count, errors), remedy).Severity = finding.Warning
}

// Findings are what the sensors show; none if they were not read.
func (r *Sensors) Findings(subject string, p *Policy) (all finding.List) {
	if r == nil {
		return nil
	}
	all = slices.Clone(r.Unread)
	add := func(bad bool, id finding.ID, message string) {
		if bad {
			all.Add(id, subject, message, "")
		}
	}
	add(r.Firewall > 0, finding.Firewall, fmt.Sprintf("its firewall has tripped (status %#x)", r.Firewall))
	add(r.Loaded && r.Calibrated != nil && !*r.Calibrated, finding.NotCalibrated, "its memory is not calibrated, and a bitstream is loaded")
	addTotal(&all, finding.ECCUncorrectable, subject, r.ECC, 0, "uncorrectable %s of its memory",
		"start the jobs again that had it since then; if it counts more, replace the card (the counter begins at 0 after a power cycle)")
	for _, t := range r.Temperatures {
		text := fmt.Sprintf("%s is %.0f °C, and %.0f °C is ", t.Label, t.Celsius, cmp.Or(p.MaxCelsius, t.Critical))
		switch {
		case p.MaxCelsius > 0 && t.Celsius >= p.MaxCelsius:
			all.Add(finding.Hot, subject, text+"the limit of the config file", "").Severity = finding.Error
		case p.MaxCelsius == 0 && t.Critical > 0 && t.Celsius >= t.Critical:
			all.Add(finding.Hot, subject, text+"critical", "")
		}
	}
	return all
}
