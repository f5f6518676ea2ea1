package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newExplainCommand(a *app) *cobra.Command {
	var f cli.Format
	var o cdi.Options
	cmd := &cobra.Command{
		Use:   "explain LPU...",
		Short: "Show what a container gets with LPUs, and why",
		Long: `explain shows the container edits that a container gets with CDI devices: nodes, mounts and variables, each with its source;
what the variables mean on the host and in the container, which number LPUs differently;
and the line by which podman, nerdctl, docker and Kubernetes ask for them. Two devices that set one variable collide: the last one wins,
and explain names the device to use instead.
` + lpuForms,
		Example: `  lpuctl cdi explain lpu0
  lpuctl cdi explain lpu0 lpu1          # collide: names lpu0-1 instead
  lpuctl cdi explain 0000:43:00.1 -o json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeLPUs,
		RunE: func(cmd *cobra.Command, args []string) error {
			inv, err := a.scanForSpec(cmd, &o)
			if err != nil {
				return err
			}
			if len(inv.LPUs) == 0 {
				return cli.NoLPU(a.Root)
			}
			e, err := cdi.Explain(inv, o, args)
			if errors.Is(err, cdi.ErrNoDevices) {
				return &cli.ExitError{Code: cli.ExitFound, Err: err, Remedy: "lpuctl list says why"}
			}
			if err != nil {
				return &cli.ExitError{Code: cli.ExitFailed, Err: err, Remedy: "lpuctl list shows every LPU, lpuctl cdi generate every device"}
			}
			a.Report(a.explainFindings(inv, o, e))
			return a.writeExplanation(e, f)
		},
	}
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	specFlags(cmd, &o)
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

// explainFindings are the collisions, and that the spec in place is not the one that is explained.
func (a *app) explainFindings(inv *discovery.Inventory, o cdi.Options, e *cdi.Explanation) (findings finding.List) {
	if len(e.Collisions) > 0 {
		remedy := "use " + strings.Join(arguments(e), " ")
		if slices.Equal(e.Use, e.Devices) {
			remedy = noWayAround
		}
		findings.Add(finding.EnvCollision, strings.Join(e.Devices, ", "), collisionText(e), remedy)
	}
	file, err := a.LocateSpec()
	if err != nil {
		return findings
	}
	if spec, _, err := cdi.Spec(inv, o); err == nil {
		if have, want, err := compare(file, spec); err == nil && !bytes.Equal(have, want) {
			findings.Add(finding.SpecDrift, file.Path, "the spec in place differs from the one that is explained here, or is not there", "")
		}
	}
	return findings
}

const noWayAround = "no device avoids it: give the models of these LPUs one value (models in the config file)"

// collisionText says of each variable that collides which device sets what.
func collisionText(e *cdi.Explanation) string {
	var variables []string
	for _, c := range e.Collisions {
		var values []string
		for _, v := range c.Values {
			values = append(values, v.Device+" sets "+v.Value)
		}
		if missesSome(c) {
			values = append(values, "which is not every LPU of the container")
		}
		variables = append(variables, c.Variable+" ("+strings.Join(values, ", ")+")")
	}
	return "of each variable the container gets the last value: " + strings.Join(variables, ", ")
}

// missesSome tells that the values of a variable do not differ: what is wrong is that its list is too short.
func missesSome(c cdi.Collision) bool {
	return !slices.ContainsFunc(c.Values, func(v cdi.SetByValue) bool { return v.Value != c.Values[0].Value })
}

// arguments are the devices to use and the variables to set, as options of a runtime.
func arguments(e *cdi.Explanation) (options []string) {
	for _, d := range e.Use {
		options = append(options, "--device", d)
	}
	for _, v := range e.UseEnv {
		options = append(options, "--env", v.String())
	}
	return options
}

// readyLine is how one runtime is asked for the LPUs.
type readyLine struct {
	Runtime string `json:"runtime"`
	Line    string `json:"line"`
}

func (a *app) writeExplanation(e *cdi.Explanation, f cli.Format) error {
	var ready []readyLine
	for _, program := range []string{"podman", "nerdctl", "docker"} {
		ready = append(ready, readyLine{program, program + " run " + strings.Join(arguments(e), " ") + " IMAGE"})
	}
	limits := fmt.Sprintf("resources: {limits: {%s: %d}}  # which LPUs, the device plugin decides", a.Config.Serve.Resource, len(e.LPUs))
	ready = append(ready, readyLine{"Kubernetes", limits})
	if f.IsDocument() {
		return cli.WriteDocument(a.Out, f, struct {
			cli.Header
			*cdi.Explanation
			Ready []readyLine `json:"ready"`
		}{cli.NewHeader("Explanation"), e, ready})
	}
	rows := [][]string{}
	for _, n := range e.Nodes {
		rows = append(rows, []string{"node", n.Path, n.Source})
	}
	for _, m := range e.Mounts {
		rows = append(rows, []string{"mount", m.HostPath + " on " + m.ContainerPath + ", read-only", m.Source})
	}
	for _, v := range e.Env {
		rows = append(rows, []string{"env", v.String(), v.Source})
	}
	if err := a.WriteTable([]string{"EDIT", "WHAT", "SOURCE"}, rows); err != nil {
		return err
	}
	if err := a.writeMeanings(e.Meanings); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	rows = nil
	for _, r := range ready {
		rows = append(rows, []string{r.Runtime + ":", r.Line})
	}
	return a.WriteTable(nil, rows)
}

// writeMeanings says what variables mean to the host and in the container, below a table of the container edits.
func (a *app) writeMeanings(meanings []cdi.Meaning) error {
	if len(meanings) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	var rows [][]string
	for _, m := range meanings {
		rows = append(rows, []string{m.Variable, m.Host, m.Container})
	}
	return a.WriteTable([]string{"VARIABLE", "ON THE HOST", "IN THE CONTAINER"}, rows)
}
