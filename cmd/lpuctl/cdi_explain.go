package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newExplainCommand(a *app) *cobra.Command {
	var f cli.Format
	var o specOptions
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
		ValidArgsFunction: completeLPUs(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			inv, err := o.scan(cmd.Context(), a)
			if err != nil {
				return err
			}
			if len(inv.LPUs) == 0 {
				return cli.NoLPU(a.Root)
			}
			e, err := cdi.Explain(inv, o.Options, args)
			if errors.Is(err, cdi.ErrNoDevices) {
				return cli.Fail(cli.ExitFound, "lpuctl list says why", "%w", err)
			}
			if err != nil {
				return cli.WithRemedy(err, cmp.Or(finding.RemedyOf(err), "lpuctl list shows every LPU, lpuctl cdi generate every device"))
			}
			site, err := a.site()
			if err != nil {
				return err
			}
			use := site.Arguments(e)
			a.Report(explainFindings(site.Spec, inv, o.Options, e, use))
			return writeExplanation(&a.Terminal, a.Config.Serve.Resource, e, use, f)
		},
	}
	a.SpecDirFlag(cmd)
	o.flags(a, cmd)
	a.FormatFlag(cmd, &f)
	return cmd
}

// explainFindings are the collisions, and that the spec in place is not the one that is
// explained.
func explainFindings(file cdi.File, inv *discovery.Inventory, o cdi.Options, e *cdi.Explanation, use []string) (findings finding.List) {
	remedy := "use " + strings.Join(use, " ")
	names := strings.Join(e.Devices, ", ")
	switch {
	case len(e.Collisions) > 0:
		if slices.Equal(e.Use, e.Devices) {
			remedy = launch.NoWayAround
		}
		findings.Add(finding.EnvCollision, names, launch.CollisionText(e), remedy)
	case e.WrongTable:
		findings.Add(finding.RingTablePart, names, launch.TableText(e), remedy)
	}
	if spec, _, err := cdi.Spec(inv, o); err == nil {
		if have, want, conflict, err := compare(file, spec); err == nil && (conflict != nil || !bytes.Equal(have, want)) {
			findings.Add(finding.SpecDrift, file.Path, "the spec in place differs from the one that is explained here, or is not there", "")
		}
	}
	return findings
}

// readyLine is how one runtime is asked for the LPUs.
type readyLine struct {
	Runtime string `json:"runtime"`
	Line    string `json:"line"`
}

func writeExplanation(t *cli.Terminal, resource string, e *cdi.Explanation, use []string, f cli.Format) error {
	ready := cli.Each([]string{"podman", "nerdctl", "docker"}, func(program string) readyLine {
		return readyLine{program, program + " run " + strings.Join(use, " ") + " IMAGE"}
	})
	limits := fmt.Sprintf("resources: {limits: {%s: %d}}  # which LPUs, the device plugin decides", resource, len(e.LPUs))
	ready = append(ready, readyLine{"Kubernetes", limits})
	if f.IsDocument() {
		return t.WriteDocument(f, struct {
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
	if err := t.WriteTable([]string{"EDIT", "WHAT", "SOURCE"}, rows); err != nil {
		return err
	}
	if len(e.Meanings) > 0 {
		fmt.Fprintln(t.Out)
		rows = cli.Each(e.Meanings, func(m cdi.Meaning) []string { return []string{m.Variable, m.Host, m.Container} })
		if err := t.WriteTable([]string{"VARIABLE", "ON THE HOST", "IN THE CONTAINER"}, rows); err != nil {
			return err
		}
	}
	fmt.Fprintln(t.Out)
	return t.WriteTable(nil, cli.Each(ready, func(r readyLine) []string { return []string{r.Runtime + ":", r.Line} }))
}
