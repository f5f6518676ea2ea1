package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
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

// probe looks for one runtime; false: it is not there.
type probe struct {
	name  string
	check func(context.Context, *Runtime) bool
}

// Check returns what is installed of containerd, that of k3s or rke2, CRI-O, Docker, podman and nerdctl on the machine
// under root. One that does not answer in time costs its own answer only.
func Check(ctx context.Context, root string, o Options) []Runtime {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	c := &checker{machine{host.Root(root)}, o}
	probes := []probe{{"containerd", c.containerd}, {"k3s", c.rancher}, {"cri-o", c.crio}, {"docker", c.docker}, {"podman", c.podman}, {"nerdctl", c.nerdctl}}
	found := make([][]Runtime, len(probes))
	var done sync.WaitGroup
	for i, p := range probes {
		done.Go(func() { found[i] = p.run(ctx, o.Timeout) })
	}
	done.Wait()
	return append([]Runtime{}, slices.Concat(found...)...)
}

// run is what a probe finds, none if the runtime is not there. Reading a file may hang for ever, and then the probe
// is left behind.
func (p probe) run(ctx context.Context, limit time.Duration) []Runtime {
	late, cancelLate := context.WithTimeout(ctx, limit+limit/2)
	defer cancelLate()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, there := newRuntime(p.name), make(chan bool, 1)
	go func() { there <- p.check(ctx, r) }()
	select {
	case isThere := <-there:
		if !isThere {
			return nil
		}
	case <-late.Done():
		unread := newRuntime(p.name)
		unread.add(finding.NoAnswer, place{}, fmt.Sprintf("its files cannot be read within %v", limit), "")
		return []Runtime{*unread}
	}
	return []Runtime{*r}
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

// found is a finding about a runtime that [Runtime.take] will name.
func found(id finding.ID, at place, message, remedy string) *finding.Finding {
	f := finding.New(id, "", message, remedy)
	return f.At(at.file, at.line)
}

// add adds a finding as [finding.List.Add] does.
func (r *Runtime) add(id finding.ID, at place, message, remedy string) {
	r.take(found(id, at, message, remedy))
}

func (r *Runtime) take(f *finding.Finding) {
	f.Subject = r.Name
	r.Findings = append(r.Findings, *f)
}

// settle fills in who answered, and what a restart would bring.
func (r *Runtime) settle(s Source, at place, message string, afterRestart State) {
	r.Source, r.AfterRestart = s, afterRestart
	if afterRestart == Unsupported {
		r.AfterRestart = Off
	}
	r.add(finding.CDISource, at, message, "")
}

// settleByFiles is settle where no daemon answers; stated says that a file decides, and not the default of the release.
func (r *Runtime) settleByFiles(stated bool, at place) {
	switch {
	case r.CDI == Unknown:
		r.settle(Files, at, "no daemon was asked, and its files do not tell", r.CDI)
	case stated:
		r.settle(Files, at, "no daemon was asked; its files say so", r.CDI)
	default:
		r.settle(Default, at, "no daemon was asked and its files say nothing, so this is what the release does", r.CDI)
	}
}

// mustRead adds a fault if lpuctl's directory is not among those that a runtime reads, or would with CDI on.
func (c *checker) mustRead(r *Runtime, dirs []string, at place, fix string) {
	if c.readsOurs(dirs) {
		return
	}
	message := "no directory is read for specs"
	if len(dirs) > 0 {
		message = fmt.Sprintf("specs are read from %s only, and lpuctl writes to %s", strings.Join(dirs, ", "), c.SpecDir)
		if last := dirs[len(dirs)-1]; path.IsAbs(last) {
			fix += "; or lpuctl cdi refresh --spec-dir " + last
		}
	}
	r.add(finding.SpecDirNotRead, at, message, fix)
}

// readsOurs tells whether lpuctl's directory is among some.
func (c *checker) readsOurs(dirs []string) bool {
	return c.SpecDir == "" || slices.ContainsFunc(dirs, func(dir string) bool { return c.Same(dir, c.SpecDir) })
}

// withOurs writes directories with lpuctl's after them as a list in TOML, which JSON reads alike.
func (c *checker) withOurs(dirs []string) string {
	all := slices.Compact(append(slices.Clone(dirs), c.SpecDir))
	return strings.ReplaceAll(fmt.Sprintf("%q", all), `" "`, `", "`)
}
