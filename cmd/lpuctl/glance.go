package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// nextStep is a command that fits the situation of the node.
type nextStep struct{ command, words string }

// glance shows the node on one screen: its LPUs, its spec, what is first wrong, and which
// three commands come next.
func glance(ctx context.Context, a *app) error {
	inv, err := a.scan(ctx)
	if errors.Is(err, fs.ErrNotExist) && a.Config != nil { // the machine has no PCI bus
		inv, err = &discovery.Inventory{}, nil
	}
	if err != nil {
		return err
	}
	spec, text, err := lookAtSpec(a, inv)
	if err != nil {
		return err
	}
	leaveOutHidden(a, inv)
	lines := []string{countText(inv)}
	if len(inv.LPUs) > 0 {
		lines = append(lines, text)
	}
	lines = append(lines, a.firstWrong(ctx, inv)...)
	lines = append(lines, "", "Next:")
	steps := nextSteps(inv, spec, sharesByLease(a.Root, inv))
	width := 0
	for i := range steps {
		steps[i].command = a.typed(steps[i].command)
		width = max(width, len(steps[i].command))
	}
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("  %-*s  # %s", width, s.command, s.words))
	}
	lines = append(lines, "", "lpuctl --help has all commands.", "")
	_, err = io.WriteString(a.People(), strings.Join(lines, "\n"))
	return err
}

// countText says how many LPUs there are, and how many of them containers can be given.
func countText(inv *discovery.Inventory) string {
	if len(inv.LPUs) == 0 {
		return "no LPU on this node"
	}
	usable, cordoned := 0, 0
	for _, l := range inv.LPUs {
		switch {
		case l.Cordoned != nil:
			cordoned++
		case l.Usable:
			usable++
		}
	}
	text := fmt.Sprintf("%s, %d usable", cli.Plural(len(inv.LPUs), "LPU"), usable)
	if cordoned > 0 {
		text += fmt.Sprintf(", %d cordoned", cordoned)
	}
	return text
}

// specState is how the spec in place stands to the hardware.
type specState int

const (
	noSpec specState = iota
	oldSpec
	rightSpec
	unknownSpec // what the hardware is cannot be said
)

// lookAtSpec compares the spec in place with the hardware, as cdi diff does.
func lookAtSpec(a *app, inv *discovery.Inventory) (state specState, text string, err error) {
	if err := inv.Undecided(); err != nil {
		return unknownSpec, "CDI spec: cannot be compared: " + err.Error(), nil
	}
	file, err := a.LocateSpec()
	if err != nil {
		return noSpec, "", err
	}
	spec, _, err := cdi.Spec(inv, cdi.Options{Kind: a.Config.CDI.Kind, Annotations: a.Config.CDI.Annotations})
	if err != nil && !errors.Is(err, cdi.ErrNoDevices) {
		return noSpec, "", err
	}
	have, want, conflict, err := compare(file, spec)
	switch {
	case err != nil:
		return noSpec, "", err
	case have == nil:
		return noSpec, "CDI spec: none is installed", nil
	case conflict != nil || !bytes.Equal(have, want):
		return oldSpec, "CDI spec: " + file.Path + " differs from the hardware", nil
	}
	return rightSpec, "CDI spec: " + file.Path + " is up to date", nil
}

// firstWrong is the cause to look at first, as doctor names it, of what a scan shows; without
// a broken link the first warning. It has its remedy, and how much else there is.
func (a *app) firstWrong(ctx context.Context, inv *discovery.Inventory) []string {
	all := withoutNotes(outOfOrder(inv)).ForPeople()
	if len(all) == 0 {
		return nil
	}
	first := worst(all)
	scanned := func(context.Context) (*discovery.Inventory, error) { return inv, nil }
	if broken := doctor.Diagnose(ctx, doctor.Limit, doctor.Cards(scanned)).First(); broken != nil {
		first = worst(withoutNotes(broken.Findings).ForPeople())
	}
	hue := cli.Yellow
	if first.Severity == finding.Error {
		hue = cli.Red
	}
	_, rest, _ := strings.Cut(shell.Printable(first.String()), ":")
	lines := []string{"", a.PaintOut(hue, string(first.Severity)) + ":" + rest, "  remedy: " + shell.Printable(first.Remedy)}
	if more := len(all) - 1; more > 0 {
		lines = append(lines, fmt.Sprintf("and %s (%s)", cli.Plural(more, "other finding"), a.typed("lpuctl health")))
	}
	return lines
}

// nextSteps are three commands that fit, the most urgent one first.
func nextSteps(inv *discovery.Inventory, spec specState, leases bool) []nextStep {
	if len(inv.LPUs) == 0 {
		return []nextStep{
			{"lpuctl demo", "what lpuctl does, on a simulated server"},
			{"lpuctl simulate /tmp/lpus", "such a server, as files that stay"},
			{"lpuctl --root /tmp/lpus list", "any command, on that server"},
		}
	}
	var steps []nextStep
	sick := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return !l.Usable })
	usable := slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Usable })
	if sick >= 0 {
		steps = append(steps, nextStep{"lpuctl describe " + inv.LPUs[sick].Name, "what is wrong with it, and what to do"})
	}
	if spec == oldSpec || spec == noSpec && usable {
		steps = append(steps, nextStep{"sudo lpuctl cdi refresh", "write the spec where container runtimes look"})
	}
	if leases && usable {
		steps = append(steps, nextStep{"lpuctl run -n 1 -- COMMAND", "run a command on an LPU of its own"})
	}
	steps = append(steps, nextStep{"lpuctl list", "the LPUs, and who uses them"})
	if spec == rightSpec {
		steps = append(steps, nextStep{"lpuctl runtime check", "which container runtimes read the spec"})
	}
	steps = append(steps,
		nextStep{"lpuctl topology", "how they are cabled"},
		nextStep{"lpuctl health", "temperature and power of each"})
	return steps[:3]
}

// typed is a command as it is typed for this root by this user.
func (a *app) typed(command string) string {
	plain, root := strings.CutPrefix(command, "sudo ")
	if string(a.Root) != "/" && !strings.Contains(plain, " --root ") && !strings.HasPrefix(plain, "lpuctl demo") &&
		!strings.HasPrefix(plain, "lpuctl simulate") {
		return strings.Replace(plain, "lpuctl", "lpuctl --root "+shell.Quoted(string(a.Root)), 1)
	}
	if root && os.Geteuid() != 0 {
		return command
	}
	return plain
}
