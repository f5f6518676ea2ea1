package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/bundle"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// replay is a bundle that is looked at in place of a machine.
type replay struct {
	bundle    *bundle.Bundle
	diagnosis doctor.Diagnosis // that was made on the node
	ends      []func()
}

// onBundles are the commands that only look.
func onBundles() []string {
	return []string{
		"list", "health", "describe", "topology", "doctor", "runtime check", "cdi validate", "cdi list", "cdi explain", "cdi generate",
		"cdi diff", "ring show", "ring check", "ring read", "config show", "config check", "allocate", "usage",
	}
}

// openBundle unpacks the bundle that --root names, and lets the rest of this process see
// that machine.
func (a *app) openBundle(cmd *cobra.Command) error {
	file := string(a.Root)
	b, err := bundle.Open(file)
	if err != nil {
		return cli.WithRemedy(err, "give --root a directory, or a file that lpuctl doctor --bundle has made")
	}
	name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if !slices.Contains(onBundles(), name) {
		return cli.Usage("%s does not work on a bundle, which can only be looked at", name)
	}
	a.replay = &replay{bundle: b}
	return a.replay.begin(a)
}

func (r *replay) begin(a *app) error {
	dir, err := os.MkdirTemp("", "lpuctl-bundle-")
	if err != nil {
		return err
	}
	r.ends = append(r.ends, func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	recording, err := r.bundle.Unpack(dir)
	if err != nil {
		return err
	}
	if _, err := r.bundle.Answer(bundle.Doctor, &r.diagnosis); err != nil {
		return err
	}
	r.ends = append(r.ends, host.Replay(recording))
	var said runtimes.Recorded
	if ok, err := r.bundle.Answer(bundle.Runtimes, &said); err != nil {
		return err
	} else if ok {
		r.ends = append(r.ends, runtimes.Replay(dir, said))
	}
	if err := r.replayHolders(dir); err != nil {
		return err
	}
	out, errOut := &there{w: a.Out, dir: dir}, &there{w: a.Err, dir: dir}
	r.ends = append(r.ends, out.flush, errOut.flush)
	a.Root, a.Out, a.Err = host.Root(dir), out, errOut
	return nil
}

// replayHolders lets it be known who had LPUs: processes and pods.
func (r *replay) replayHolders(dir string) error {
	var users discovery.RecordedUsers
	if ok, err := r.bundle.Answer(bundle.Users, &users); err != nil {
		return err
	} else if ok {
		r.ends = append(r.ends, discovery.ReplayUsers(dir, users))
	}
	var holders pods.Recorded
	if ok, err := r.bundle.Answer(bundle.Pods, &holders); err != nil {
		return err
	} else if ok {
		r.ends = append(r.ends, pods.Replay(host.Root(dir), holders))
	}
	return nil
}

// end removes what was unpacked.
func (r *replay) end() {
	if r == nil {
		return
	}
	for _, end := range slices.Backward(r.ends) {
		end()
	}
}

// checks returns the checks of a replay: what the files of the bundle say is judged by
// this lpuctl, and of all else is known what was found on the node.
func (r *replay) checks(all []doctor.Check) []doctor.Check {
	if r == nil {
		return all
	}
	ofFiles := []doctor.Link{doctor.Card, doctor.Driver, doctor.Node, doctor.Health, doctor.Cabling, doctor.Spec}
	all = slices.DeleteFunc(all, func(c doctor.Check) bool { return !slices.Contains(ofFiles, c.Link) })
	for _, s := range r.diagnosis.Steps {
		if !slices.Contains(ofFiles, s.Link) {
			all = append(all, doctor.Recorded(s))
		}
	}
	return all
}

// there writes texts in which paths are as on the node of a bundle. It writes whole lines.
type there struct {
	w   io.Writer
	dir string

	mu   sync.Mutex
	line []byte
}

func (t *there) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line = append(t.line, p...)
	end := bytes.LastIndexByte(t.line, '\n') + 1
	text := t.line[:end]
	if end > 0 {
		if _, err := t.w.Write(t.rename(text)); err != nil {
			return 0, err
		}
		t.line = slices.Clone(t.line[end:])
	}
	return len(p), nil
}

func (t *there) rename(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte(t.dir+"/"), []byte("/"))
	return bytes.ReplaceAll(text, []byte(t.dir), []byte("/"))
}

func (t *there) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = t.w.Write(t.rename(t.line))
	t.line = nil
}
