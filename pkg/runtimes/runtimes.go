package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// State is what a runtime does with CDI devices.
type State string

// The states. Unknown is never a guess: the answer cannot be had from here.
const (
	On          State = "on"
	Off         State = "off"         // containers start without the device, or not at all
	Unsupported State = "unsupported" // it is too old to know CDI
	Unknown     State = "unknown"
)

// Source is who answered.
type Source string

// The sources. Default is what the release does where no file says anything.
const (
	Live    Source = "live"
	Files   Source = "files"
	Default Source = "default"
)

// DefaultTimeout is how long a runtime has to answer; a healthy one takes milliseconds.
const DefaultTimeout = 3 * time.Second

// Runtime is one container runtime of a machine, and what becomes of a CDI device that it is asked for.
type Runtime struct {
	Name          string       `json:"name"`
	Version       string       `json:"version,omitempty"`
	CDI           State        `json:"cdi"`
	SpecDirs      []string     `json:"specDirs"`                // where it looks for specs, the highest priority last
	MaxCDIVersion string       `json:"maxCdiVersion,omitempty"` // the highest cdiVersion it loads
	Source        Source       `json:"source"`
	AfterRestart  State        `json:"afterRestart"` // what its files say, which a restart brings into force
	Findings      finding.List `json:"findings"`
}

// Options say where to look, and what for.
type Options struct {
	SpecDir           string        // where lpuctl writes the spec, below the root
	ContainerdAddress string        // socket, as typed; "": the usual one below the root
	ContainerdConfig  string        // config file, as typed; "": the one in use, or the usual one below the root
	Timeout           time.Duration // for each runtime; 0: DefaultTimeout
}

// configMax and databaseMax are far more bytes than a config file or a package database has.
const (
	configMax   = 1 << 20
	databaseMax = 64 << 20
)

// machine is the machine whose runtimes are checked.
type machine struct{ host.Root }

// checker looks at the runtimes of one machine.
type checker struct {
	machine
	Options
}

// Check returns what is installed of containerd, that of k3s or rke2, CRI-O, Docker, podman and nerdctl on the machine
// under root. One that does not answer in time costs its own answer only.
func Check(ctx context.Context, root string, o Options) []Runtime {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	c := &checker{machine{host.Root(root)}, o}
	names := []string{"containerd", "k3s", "cri-o", "docker", "podman", "nerdctl"}
	probes := []func(context.Context, *Runtime) bool{c.containerd, c.rancher, c.crio, c.docker, c.podman, c.nerdctl}
	answers := make([]chan *Runtime, len(probes))
	for i, probe := range probes {
		answers[i] = make(chan *Runtime, 1)
		go func() { answers[i] <- within(ctx, o.Timeout, names[i], probe) }()
	}
	found := []Runtime{}
	for _, answer := range answers {
		if r := <-answer; r != nil {
			found = append(found, *r)
		}
	}
	return found
}

// within is what a probe finds, nil if the runtime is not there. Reading a file may hang for ever, and then the probe
// is left behind.
func within(ctx context.Context, limit time.Duration, name string, probe func(context.Context, *Runtime) bool) *Runtime {
	late, cancelLate := context.WithTimeout(ctx, limit+limit/2)
	defer cancelLate()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, done := newRuntime(name), make(chan bool, 1)
	go func() { done <- probe(ctx, r) }()
	select {
	case isThere := <-done:
		if !isThere {
			return nil
		}
		return r
	case <-late.Done():
		unread := newRuntime(name)
		unread.add(found(finding.NoAnswer, place{}, fmt.Sprintf("its files cannot be read within %v", limit), "look for a file system that hangs (dmesg, mount)"))
		return unread
	}
}

func newRuntime(name string) *Runtime {
	return &Runtime{Name: name, CDI: Unknown, AfterRestart: Unknown, Source: Default, SpecDirs: []string{}, Findings: finding.List{}}
}

// place is where something is written: a file, and a line if one can be told. The zero value is nowhere.
type place struct {
	file string
	line int
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// found is a finding about a runtime that [Runtime.add] will name.
func found(id finding.ID, at place, message, remedy string) *finding.Finding {
	f := finding.New(id, "", message, remedy)
	return f.At(at.file, at.line)
}

func (r *Runtime) add(f *finding.Finding) {
	f.Subject = r.Name
	r.Findings = append(r.Findings, *f)
}

// settle fills in who answered, and what a restart would bring.
func (r *Runtime) settle(s Source, at place, message string, afterRestart State) {
	r.Source, r.AfterRestart = s, afterRestart
	if afterRestart == Unsupported {
		r.AfterRestart = Off
	}
	r.add(found(finding.CDISource, at, message, ""))
}

// checkDirs holds the directories that a runtime reads against the one that lpuctl writes to.
func (c *checker) checkDirs(r *Runtime, at place, fix string) {
	if r.CDI == On {
		c.mustRead(r, r.SpecDirs, at, fix)
	}
}

// mustRead adds a fault if lpuctl's directory is not among those that a runtime reads, or would with CDI on.
func (c *checker) mustRead(r *Runtime, dirs []string, at place, fix string) {
	if c.readsOurs(dirs) {
		return
	}
	message := map[bool]string{true: "CDI is on, but no directory is read for specs", false: "with CDI on no directory would be read for specs"}[r.CDI == On]
	if len(dirs) > 0 {
		message = fmt.Sprintf("specs are read from %s only, and lpuctl writes to %s", strings.Join(dirs, ", "), c.SpecDir)
	}
	if i := len(dirs) - 1; i >= 0 && path.IsAbs(dirs[i]) {
		fix += "; or lpuctl cdi refresh --spec-dir " + dirs[i]
	}
	r.add(found(finding.SpecDirNotRead, at, message, fix))
}

// readsOurs tells whether lpuctl's directory is among some.
func (c *checker) readsOurs(dirs []string) bool {
	return c.SpecDir == "" || slices.ContainsFunc(dirs, func(dir string) bool { return c.Same(dir, c.SpecDir) })
}

// withOurs writes directories with lpuctl's among them as a list in TOML, which JSON reads alike.
func (c *checker) withOurs(dirs []string) string {
	var parts []string
	for _, dir := range append(slices.Clone(dirs), c.SpecDir) {
		if q := strconv.Quote(dir); !slices.Contains(parts, q) {
			parts = append(parts, q)
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
