package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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
				return cli.Fail(cli.ExitFound, "lpuctl list says why", "%w", err)
			}
			if err != nil {
				return cli.WithRemedy(err, "lpuctl list shows every LPU, lpuctl cdi generate every device")
			}
			use := a.arguments(e)
			a.Report(a.explainFindings(inv, o, e, use))
			return a.writeExplanation(e, use, f)
		},
	}
	a.SpecDirFlag(cmd)
	a.specFlags(cmd, &o)
	a.FormatFlag(cmd, &f)
	return cmd
}

// explainFindings are the collisions, and that the spec in place is not the one that is
// explained.
func (a *app) explainFindings(inv *discovery.Inventory, o cdi.Options, e *cdi.Explanation, use []string) (findings finding.List) {
	remedy := "use " + strings.Join(use, " ")
	names := strings.Join(e.Devices, ", ")
	switch {
	case len(e.Collisions) > 0:
		if slices.Equal(e.Use, e.Devices) {
			remedy = noWayAround
		}
		findings.Add(finding.EnvCollision, names, collisionText(e), remedy)
	case e.WrongTable:
		findings.Add(finding.RingTablePart, names, tableText(e), remedy)
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
	text := "of each variable the container gets the last value: " + strings.Join(variables, ", ")
	if e.WrongTable {
		text += "; " + tableText(e)
	}
	return text
}

// tableText says which ring table a container reads with devices that are combined.
func tableText(e *cdi.Explanation) string {
	if e.Table == nil {
		return "a program in the container reads the host's ring table, which counts LPUs in another way"
	}
	return "a program in the container reads the ring table of " + strings.Join(e.Table.LPUs, " ") + " only"
}

// missesSome tells that the values of a variable do not differ: what is wrong is that its
// list is too short.
func missesSome(c cdi.Collision) bool {
	return !slices.ContainsFunc(c.Values, func(v cdi.SetByValue) bool { return v.Value != c.Values[0].Value })
}

// arguments are the devices to use, the variables to set and the ring table to mount, as
// options of a runtime. The table is in place then.
func (a *app) arguments(e *cdi.Explanation) (options []string) {
	for _, d := range e.Use {
		options = append(options, "--device", d)
	}
	for _, v := range e.UseEnv {
		options = append(options, "--env", v.String())
	}
	if e.UseTable == nil {
		return options
	}
	file, err := a.putTable(e.UseTable)
	if err != nil {
		a.Log.Warn("the container gets no ring table of its own, and may read the host's, which counts LPUs in another way", "error", err)
		return options
	}
	// The ring table of an ordinary user is not made again after a boot.
	if err := e.UseTable.Keep(a.Root); err != nil && !errors.Is(err, fs.ErrPermission) {
		a.Log.Warn("the ring table of the container is not made again after a boot", "error", err)
	}
	return append(options, "--volume", file+":"+e.UseTable.ContainerPath+":ro")
}

// readyLine is how one runtime is asked for the LPUs.
type readyLine struct {
	Runtime string `json:"runtime"`
	Line    string `json:"line"`
}

func (a *app) writeExplanation(e *cdi.Explanation, use []string, f cli.Format) error {
	ready := cli.Each([]string{"podman", "nerdctl", "docker"}, func(program string) readyLine {
		return readyLine{program, program + " run " + strings.Join(use, " ") + " IMAGE"}
	})
	limits := fmt.Sprintf("resources: {limits: {%s: %d}}  # which LPUs, the device plugin decides", a.Config.Serve.Resource, len(e.LPUs))
	ready = append(ready, readyLine{"Kubernetes", limits})
	if f.IsDocument() {
		return a.WriteDocument(f, struct {
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
	if len(e.Meanings) > 0 {
		fmt.Fprintln(a.Out)
		rows = cli.Each(e.Meanings, func(m cdi.Meaning) []string { return []string{m.Variable, m.Host, m.Container} })
		if err := a.WriteTable([]string{"VARIABLE", "ON THE HOST", "IN THE CONTAINER"}, rows); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.Out)
	return a.WriteTable(nil, cli.Each(ready, func(r readyLine) []string { return []string{r.Runtime + ":", r.Line} }))
}
