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

// The states. Unknown means that the answer is not available; it is never a guess.
const (
	On          State = "on"
	Off         State = "off"         // containers start without the device, or not at all
	Unsupported State = "unsupported" // the release is too old to have CDI
	Unknown     State = "unknown"
)

// Source is where an answer is from.
type Source string

// The sources.
const (
	Live    Source = "live"    // the running daemon
	Files   Source = "files"   // the config files
	Default Source = "default" // the default of the release: no file sets anything
)

// DefaultTimeout is how long a runtime has to answer; a healthy one takes milliseconds.
const DefaultTimeout = 3 * time.Second

// Runtime is one container runtime of a machine, and what it does with CDI devices.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	CDI     State  `json:"cdi"`
	// SpecDirs are the directories that it reads specs from, the highest priority last.
	SpecDirs      []string     `json:"specDirs"`
	MaxCDIVersion string       `json:"maxCdiVersion,omitempty"` // the highest cdiVersion it loads
	Source        Source       `json:"source"`
	AfterRestart  State        `json:"afterRestart"` // by its files, which a restart makes effective
	Findings      finding.List `json:"findings"`
	// UsedByKubelet: it is the one behind the socket that the kubelet of the machine
	// uses.
	UsedByKubelet bool `json:"usedByKubelet,omitempty"`
	// Unused: it need not hand out anything. Only files of it are there, or no kubelet
	// uses the CRI that Docker's packages disable.
	Unused bool `json:"unused,omitempty"`
}

// Options say where to look, and what for.
type Options struct {
	SpecDir           string // where lpuctl writes the spec, below the root
	ContainerdAddress string // socket, as typed; "": the usual one below the root
	// ContainerdConfig is the config file, as typed; "": the one in use, or the usual one
	// below the root.
	ContainerdConfig string
	Timeout          time.Duration // for each runtime; 0: DefaultTimeout
	filesOnly        bool          // no daemon is asked
}

// configMax and databaseMax are far more bytes than a config file or a package database
// has.
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
	kubelet func() kubelet // found when it is first asked for
}

// probe checks one runtime. The result of check is false if the runtime is not installed.
type probe struct {
	name  string
	check func(context.Context, *Runtime) bool
}

// Check returns what is installed of containerd, that of k3s, rke2, k0s or MicroK8s,
// CRI-O, Docker, podman and nerdctl on the machine under root. One that does not answer
// in time costs its own answer only.
func Check(ctx context.Context, root string, o Options) []Runtime {
	if found, recorded := recordedOf(root, o); recorded {
		return found
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	c := &checker{machine: machine{host.Root(root)}, Options: o}
	c.kubelet = sync.OnceValue(c.findKubelet)
	probes := []probe{
		{"containerd", c.containerd}, {"k3s", c.distribution(k3s(), rke2())},
		{"k0s", c.distribution(k0s())}, {"microk8s", c.distribution(microK8s())},
		{"cri-o", c.read(crio())}, {"docker", c.docker}, {"docker-rootless", c.rootlessDocker},
		{"podman", c.read(podman())}, {"nerdctl", c.read(nerdctl())},
	}
	found := make([][]Runtime, len(probes))
	var done sync.WaitGroup
	for i, p := range probes {
		done.Go(func() { found[i] = p.run(ctx, o.Timeout) })
	}
	done.Wait()
	return append([]Runtime{}, slices.Concat(found...)...)
}

// run returns the runtime, or nothing if it is not installed. Reading a file may hang for
// ever: such a probe is abandoned.
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
		unread.add(finding.FilesStalled, location{}, fmt.Sprintf("its files cannot be read within %v", limit), "")
		return []Runtime{*unread}
	}
	return []Runtime{*r}
}

// Confirmed reports whether it is known that the runtime hands out LPUs, now and after a
// restart, or need not.
func (r *Runtime) Confirmed() bool {
	return r.Unused || r.CDI == On && r.AfterRestart == On && !r.Findings.HasErrors()
}

func newRuntime(name string) *Runtime {
	return &Runtime{Name: name, CDI: Unknown, AfterRestart: Unknown, Source: Default, SpecDirs: []string{}, Findings: finding.List{}}
}

// isOf fills in what is known of the program, by the name by which [MaxCDI] knows it.
func (r *Runtime) isOf(p program, consumer string) {
	r.Version, r.MaxCDIVersion = p.release.Text, cmp.Or(p.maxCDI, latest(p.release, steps()[consumer]))
}

// location is a file, and a line in it if one is known. The zero value is no location.
type location struct {
	file string
	line int
}

func (p location) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// whole is a file of the machine as a whole.
func (m machine) whole(p string) location { return location{file: m.Shown(p)} }

// newFinding makes a finding whose subject [Runtime.addFinding] fills in.
func newFinding(id finding.ID, at location, message, remedy string) *finding.Finding {
	f := finding.New(id, "", message, remedy)
	return f.At(at.file, at.line)
}

// unreadable is why a file does not tell what it should.
func unreadable(at location, problem string, err error) *finding.Finding {
	return newFinding(finding.ConfigUnreadable, at, problem+host.Reason(err).Error(), "")
}

// add adds a finding as [finding.List.Add] does.
func (r *Runtime) add(id finding.ID, at location, message, remedy string) {
	r.addFinding(newFinding(id, at, message, remedy))
}

func (r *Runtime) addFinding(f *finding.Finding) {
	f.Subject = r.Name
	r.Findings = append(r.Findings, *f)
}

// setSource fills in where the answer is from, and the state after a restart.
func (r *Runtime) setSource(s Source, at location, message string, afterRestart State) {
	r.Source, r.AfterRestart = s, supported(afterRestart)
	r.add(finding.CDISource, at, message, "")
}

// setFileSource is setSource if no daemon answered. stated says that a file sets the
// state, not the default of the release.
func (r *Runtime) setFileSource(stated bool, at location) {
	source, message := Default, "no daemon was asked and its files say nothing, so this is the default of the release"
	switch {
	case r.CDI == Unknown:
		source, message = Files, "no daemon was asked, and its files do not say"
	case stated:
		source, message = Files, "no daemon was asked; its files say so"
	}
	r.setSource(source, at, message, r.CDI)
}

// requireSpecDir adds an error if lpuctl's directory is not among those that a runtime
// reads, or would read with CDI on.
func (c *checker) requireSpecDir(r *Runtime, dirs []string, at location, fix string) {
	if c.includesSpecDir(dirs) {
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

// includesSpecDir reports whether lpuctl's directory is one of dirs.
func (c *checker) includesSpecDir(dirs []string) bool {
	return c.SpecDir == "" || slices.ContainsFunc(dirs, func(dir string) bool { return c.Same(dir, c.SpecDir) })
}

// addSpecDir writes dirs and lpuctl's directory as a list in TOML, which is JSON as well.
func (c *checker) addSpecDir(dirs []string) string {
	all := slices.Compact(append(slices.Clone(dirs), c.SpecDir))
	return strings.ReplaceAll(fmt.Sprintf("%q", all), `" "`, `", "`)
}
