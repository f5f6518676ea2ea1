package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newRefreshCommand(a *app) *cobra.Command {
	var o specOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "refresh",
		Short: "Write the CDI spec where runtimes look",
		Long: `refresh makes the spec of the LPUs that are here now and puts it in place as a whole: a program that reads it
meanwhile sees the old file or the new one. It renames a fresh file in even when nothing changed, because
that makes runtimes forget device numbers they remember. If there is no LPU, our file is removed. If the
node cannot be read, or a PCI function that may be an LPU, nothing is touched. A device that another file in
the directory defines too is not added, the others are written, and the exit code is 1. A file that was
written for another kind stays, with a warning.

The exit code is 3 if an LPU was left out because it has no node known to be its own, or a ring table
because it cannot be written, 4 if there is no LPU.`,
		Example: `  sudo lpuctl cdi refresh
  lpuctl cdi refresh --dry-run         # what would change
  sudo lpuctl cdi refresh --spec-dir /etc/cdi`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.LocateSpec()
			if err != nil {
				return err
			}
			if dryRun {
				return o.preview(cmd.Context(), a, file)
			}
			return o.refresh(cmd.Context(), a, file)
		},
	}
	a.SpecDirFlag(cmd)
	o.flags(a, cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the difference to the file in place, and change nothing")
	return cmd
}

// refreshed is what a refresh has to tell: people, and a refresh that waited for it.
type refreshed struct {
	Code     int          `json:"code"`   // exit code
	Error    string       `json:"error"`  // that goes with the code; "" if the findings say it
	Remedy   string       `json:"remedy"` // of the error; "" if there is none
	Says     string       `json:"says"`   // what was done; "" if nothing was
	Findings finding.List `json:"findings"`
}

// end is how the command ends.
func (r *refreshed) end() error {
	switch {
	case r.Code == cli.ExitDone:
		return nil
	case r.Error == "":
		return cli.Found()
	}
	return cli.Fail(r.Code, r.Remedy, "%s", r.Error)
}

// refresh scans and writes under the lock of the file. If another refresh of the same
// request began its scan after this one had started to wait for the lock, its result is
// this one's too.
func (o specOptions) refresh(ctx context.Context, a *app, file cdi.File) error {
	request, err := o.request(a)
	if err != nil {
		return err
	}
	began := host.Now()
	held, err := file.Hold(ctx)
	if err != nil {
		return err
	}
	defer held.Release()
	var r refreshed
	if held.Recall(began, request, &r) {
		if r.Says != "" {
			r.Says += " (by another lpuctl, at the same time)"
		}
	} else {
		began = host.Now()
		r = o.refreshHeld(ctx, a, held)
		if err := ctx.Err(); err != nil {
			return err
		}
		// The spec is written. After an error only those who wait have to scan again.
		if err := held.Remember(began, request, r); err != nil {
			a.Log.Warn("the result of the refresh cannot be kept", "error", err)
		}
	}
	a.Report(r.Findings)
	if r.Says != "" {
		a.Say("%s", r.Says)
	}
	return r.end()
}

// request identifies what a spec depends on besides the machine.
func (o specOptions) request(a *app) (string, error) {
	scan, err := a.ScanOptions(discovery.Options{})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{cli.ReadVersion(), a.Root, a.Config.CDI, o.Options, scan.Models, scan.RingTable})
	return string(text), err
}

// refreshHeld makes the spec of what the machine is now, and puts it in place.
func (o specOptions) refreshHeld(ctx context.Context, a *app, held *cdi.Held) (r refreshed) {
	m, err := o.make(ctx, a, toUse)
	if err == nil {
		r.Findings = m.findings
		r.Says, err = putSpec(ctx, a, held, m, &r.Findings)
		err = cmp.Or(err, m.end)
	}
	r.Code, r.Remedy = cli.CodeOf(err), cli.RemedyFor(err)
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// putSpec writes a spec or, if there is nothing to hand out, removes the file. It says
// what it did.
func putSpec(ctx context.Context, a *app, held *cdi.Held, m *made, findings *finding.List) (says string, err error) {
	if m.spec == nil {
		removed, err := held.Remove()
		if err != nil {
			return "", err
		}
		return removal(held.File, removed), nil
	}
	*findings = slices.Concat(*findings, cdi.FactoryImages(m.inv), cdi.Unverified(m.inv), held.OldKinds(m.spec))
	err = held.Write(m.spec)
	if conflict, ok := errors.AsType[*cdi.Conflict](err); ok {
		out := len(conflict.LeftOut)
		switch left := len(m.spec.Devices) - out; {
		case left == 0:
			says = fmt.Sprintf("%s: no device is left for it", held.Path)
		case out == 0:
			says = fmt.Sprintf("wrote %s: %s", held.Path, cli.Plural(left, "device"))
		default:
			says = fmt.Sprintf("wrote %s: %s, without %d", held.Path, cli.Plural(left, "device"), out)
		}
		return says, err
	}
	if err != nil {
		return "", err
	}
	unread, wrong, err := checkBeside(ctx, a, held.File, m.inv)
	*findings = slices.Concat(*findings, unread, wrong)
	if err == nil && len(wrong) > 0 && m.end == nil {
		m.end = cli.Found()
	}
	if memory, err := node.RememberIn(a.Root); err == nil {
		if err := memory.KeepRing(m.inv); err != nil {
			a.Log.Debug("the cabling cannot be kept", "error", err)
		}
	}
	return fmt.Sprintf("wrote %s: %s, cdiVersion %s", held.Path, cli.Plural(len(m.spec.Devices), "device"), m.spec.Version), err
}

// checkBeside says whether runtimes read the directory of the spec, and what containers
// get by other files and should not. What was just written is right by itself. Where it
// lies in a usual directory and no other file is there, the runtimes are not looked for,
// because that takes time.
func checkBeside(ctx context.Context, a *app, own cdi.File, inv *discovery.Inventory) (unread, wrong finding.List, err error) {
	usual := []cdi.Order{{Dirs: []string{"/etc/cdi", cdi.DefaultSpecDir}}}
	isUsual := a.Root.Same(a.Config.CDI.SpecDir, "/etc/cdi") || a.Root.Same(a.Config.CDI.SpecDir, cdi.DefaultSpecDir)
	v := &cdi.Validator{Root: a.Root, Kind: a.Config.CDI.Kind, Own: own.Path}
	if !isUsual || !own.IsAlone(usual) {
		v = specValidator(ctx, a, own, inv)
	}
	if unread, err = v.CheckDirs([]string{a.Config.CDI.SpecDir}); err == nil && v.Host && !own.IsAlone(v.Orders) {
		wrong, err = v.Effective(specDirs(a))
	}
	return unread, wrong, err
}

// preview shows what refresh would change, and ends as refresh would.
func (o specOptions) preview(ctx context.Context, a *app, file cdi.File) error {
	m, err := o.make(ctx, a, toShow)
	if err != nil {
		return err
	}
	a.Report(m.findings)
	if m.spec != nil {
		a.Report(slices.Concat(cdi.FactoryImages(m.inv), cdi.Unverified(m.inv), file.OldKinds(m.spec)))
	}
	wrong, err := reportOthers(ctx, a, file, m)
	if err != nil {
		return err
	}
	if wrong && m.end == nil {
		m.end = cli.Found()
	}
	have, want, conflict, err := compare(file, m.spec)
	if err != nil {
		return err
	}
	err = showChange(&a.Terminal, file.Path, have, want)
	if err == nil && conflict != nil {
		err = conflict
	}
	return cmp.Or(err, m.end)
}

// compare returns the bytes of the spec in place and of the one that refresh would write,
// nil where there is none, and the conflict that refresh would report.
func compare(file cdi.File, spec *specs.Spec) (have, want []byte, conflict *cdi.Conflict, err error) {
	have, err = file.Read()
	if err == nil && spec != nil {
		spec, err = file.Writable(spec)
	}
	conflict, ok := errors.AsType[*cdi.Conflict](err)
	if ok || errors.Is(err, fs.ErrNotExist) { // refresh makes the directory
		err = nil
	}
	if err == nil && spec != nil {
		want, err = cdi.Marshal(spec)
	}
	return have, want, conflict, err
}

func showChange(t *cli.Terminal, path string, have, want []byte) error {
	from, to := path, path+" (new)"
	if have == nil {
		from = "/dev/null"
	}
	if want == nil {
		to = "/dev/null"
	}
	change := diff.Diff(from, have, to, want)
	if len(change) == 0 {
		t.Say("%s: nothing would change", path)
	}
	var text strings.Builder
	for line := range strings.Lines(string(change)) {
		text.WriteString(t.PaintOut(diffHue(line), strings.TrimSuffix(line, "\n")) + "\n")
	}
	_, err := io.WriteString(t.Out, text.String())
	return err
}

// diffHue is the colour of a line of a diff. The line says the same by its first
// character.
func diffHue(line string) cli.Hue {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
		return cli.NoHue
	case strings.HasPrefix(line, "+"):
		return cli.Green
	case strings.HasPrefix(line, "-"):
		return cli.Red
	}
	return cli.NoHue
}
