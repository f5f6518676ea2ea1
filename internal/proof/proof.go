package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/launch"
)

// State is what came of a proof.
type State string

// The states. What could not be tried is never a failure, and never proved.
const (
	Proved     State = "proved"
	Failed     State = "failed"
	Unprovable State = "not provable"
)

// Result is what came of the proof by one engine.
type Result struct {
	Engine   string `json:"engine"`
	Rootless bool   `json:"rootless,omitempty"` // it is this user's own
	State    State  `json:"state"`
	Why      string `json:"why,omitempty"` // in one sentence; "" if it is proved
	Remedy   string `json:"remedy,omitempty"`
	// Differences are what the container has other than promised.
	Differences []string `json:"differences"`
	// Words are the engine's own.
	Words  string   `json:"words,omitempty"`
	Opened []string `json:"opened"` // nodes
	// Libraries are those in the mounts. They were read, and not loaded.
	Libraries []Library `json:"libraries"`
	// FromImage are libraries that these need and that an image has to bring.
	FromImage    []string `json:"fromImage"`
	Milliseconds int64    `json:"milliseconds"`
}

// Proof is what is to be proved, and by what.
type Proof struct {
	Promise   *Promise
	Container *launch.Container
	// Started makes the command of an engine: {args} in its arguments becomes the options
	// by which a container gets the LPUs.
	Started func(args []string) ([]string, error)
	Program string // the file of this lpuctl
	Timeout time.Duration
	TempDir string
	Sockets []Socket // where CRI is served

	id, dir string
}

// engine starts containers.
type engine interface {
	name() string
	// ready returns why nothing can be proved by the engine, and removes what was left
	// behind.
	ready(ctx context.Context, now time.Time) *obstacle
	// prepare makes what a container needs; clean removes it, also if prepare has failed
	// half way.
	prepare(ctx context.Context, p *Proof) error
	// run starts a container, with the LPUs or without, and returns what it printed.
	run(ctx context.Context, p *Proof, with bool) (out []byte, err error)
	clean(ctx context.Context, p *Proof, answered bool)
}

// obstacle is why an engine cannot be tried.
type obstacle struct{ why, remedy, words string }

// spokenError is an error with an engine's own words.
type spokenError struct {
	error

	words string
}

// cleanTime is how long it may take to remove what was made. It counts also after the
// user has interrupted.
const cleanTime = 20 * time.Second

// Run tries engines one after the other. Nothing of it stays.
func (p *Proof) Run(ctx context.Context, names []string, found func(*Result)) (err error) {
	now := time.Now()
	sweepDirs(p.TempDir, now)
	p.id = self(now)
	if p.dir, err = os.MkdirTemp(p.TempDir, Prefix+p.id+"-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeTree(p.dir)) }()
	for _, name := range names {
		r := p.try(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found(r)
	}
	return nil
}

// try tries one engine.
func (p *Proof) try(ctx context.Context, name string) *Result {
	began := time.Now()
	r := &Result{Engine: name, Differences: []string{}, Opened: []string{}, Libraries: []Library{}, FromImage: []string{}}
	defer func() { r.Milliseconds = time.Since(began).Milliseconds() }()
	e, missing := p.engineOf(name)
	if missing != nil {
		return r.cannot(missing)
	}
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	r.Rootless = os.Geteuid() != 0 && name == podman
	if o := e.ready(limited, began); o != nil {
		if limited.Err() != nil {
			o = &obstacle{why: fmt.Sprintf("there is no answer within %v", p.Timeout)}
		}
		return r.cannot(o)
	}
	answered := false
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		e.clean(late, p, answered)
	}()
	if err := e.prepare(limited, p); err != nil {
		return r.cannot(&obstacle{why: "what the container needs cannot be made: " + err.Error(), words: wordsOf(err)})
	}
	answer, err := p.ask(limited, e, true)
	if err != nil {
		if ctx.Err() == nil {
			p.control(ctx, e, r, err)
		}
		return r
	}
	answered = true
	r.judge(answer)
	return r
}

func (r *Result) cannot(o *obstacle) *Result {
	r.State, r.Why, r.Remedy, r.Words = Unprovable, o.why, o.remedy, o.words
	return r
}

// ask starts a container and reads its answer.
func (p *Proof) ask(ctx context.Context, e engine, with bool) (*Answer, error) {
	out, err := e.run(ctx, p, with)
	if ctx.Err() != nil {
		return nil, &spokenError{fmt.Errorf("there is no answer within %v", p.Timeout), wordsOf(err)}
	}
	var a Answer
	if jsonErr := json.Unmarshal(bytes.TrimSpace(out), &a); jsonErr != nil {
		if err == nil {
			err = fmt.Errorf("the container has printed something else: %.200q", out)
		}
		return nil, err
	}
	return &a, nil
}

// control tells why there was no answer: the LPUs, or that the engine starts no container
// at all, which one without LPUs shows.
func (p *Proof) control(ctx context.Context, e engine, r *Result, err error) {
	r.Words = wordsOf(err)
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	late, cancelLate := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancelLate()
	e.clean(late, p, false)
	without := e.prepare(limited, p)
	if without == nil {
		_, without = p.ask(limited, e, false)
	}
	if without != nil {
		r.State, r.Why = Unprovable, "it starts no container at all, also without an LPU: "+err.Error()
		r.Remedy = "see its own words; lpuctl doctor --run says more once it starts containers"
		return
	}
	r.State, r.Why = Failed, "the container does not start with the LPUs, and does without: "+err.Error()
	r.Remedy = "see lpuctl cdi validate, and lpuctl runtime check"
}

func wordsOf(err error) string {
	if spoken := (*spokenError)(nil); errors.As(err, &spoken) {
		return spoken.words
	}
	return ""
}

// judge says what an answer means.
func (r *Result) judge(a *Answer) {
	r.Opened, r.Libraries = a.Opened, a.Libraries
	image, more := fromImage(a.Libraries)
	r.Differences = append(r.Differences, a.Differences...)
	r.Differences = append(r.Differences, more...)
	r.FromImage = append(r.FromImage, image...)
	switch {
	case a.Nothing:
		r.State, r.Why = Failed, "the container has started and got nothing of the LPUs: the engine ignores CDI devices, CDI is off"
		r.Remedy = "see lpuctl runtime check"
	case len(r.Differences) > 0:
		r.State, r.Why = Failed, "the container has not got what was promised"
		r.Remedy = "see lpuctl cdi validate, and lpuctl cdi refresh if the spec is old"
	default:
		r.State = Proved
	}
}

// The names of engines.
const (
	podman     = "podman"
	nerdctl    = "nerdctl"
	docker     = "docker"
	containerd = "containerd"
	crio       = "cri-o"
	apptainer  = "apptainer"
)

// Engines are the names of all engines.
func Engines() []string { return []string{podman, docker, nerdctl, containerd, crio, apptainer} }

// engineOf is the engine of a name, or why there is none.
func (p *Proof) engineOf(name string) (engine, *obstacle) {
	switch name {
	case podman, docker, nerdctl:
		return &client{program: name}, nil
	case apptainer:
		return nil, &obstacle{why: "lpuctl does not start containers of Apptainer yet", remedy: "apptainer exec --device DEVICE IMAGE COMMAND"}
	}
	for _, s := range p.Sockets {
		if s.Engine == name {
			return &cri{socket: s}, nil
		}
	}
	return nil, &obstacle{why: "there is no socket of it", remedy: "start it, if it is meant to run"}
}

// Here are the engines of this machine: those whose program is found or whose socket is
// there.
func Here(find func(program string) bool, sockets []Socket) (names []string) {
	for _, name := range Engines() {
		here := false
		switch name {
		case containerd, crio:
			for _, s := range sockets {
				here = here || s.Engine == name
			}
		default:
			here = find(name)
		}
		if here {
			names = append(names, name)
		}
	}
	return names
}

// promise writes the promise for a container that reads it as a file.
func (p *Proof) promise() []byte {
	data, _ := json.Marshal(p.Promise) // strings, numbers and bytes only
	return data
}

// root is the directory of the container that has lpuctl only, made once.
func (p *Proof) root() (string, error) {
	dir := filepath.Join(p.dir, "root")
	if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
		return dir, nil
	}
	return dir, writeRoot(dir, p.Program)
}

// tail is the end of what a program said, in one line each.
func tail(text []byte) string {
	const most = 1000
	text = bytes.TrimSpace(text)
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.ToValidUTF8(string(text), "?")
}
