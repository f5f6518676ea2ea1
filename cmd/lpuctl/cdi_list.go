package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// specReadLimit bounds the reading of spec directories, where other vendors' files lie
// too.
const specReadLimit = 5 * time.Second

func newCDIListCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List our devices as runtimes resolve them, with the file that serves each",
		Long: `list reads the spec files as a runtime does, with the same library, from the directories that the runtimes of
this node read, in their order; where none is known, from /etc/cdi and /var/run/cdi (and the configured spec directory).
Where runtimes get a device by different files, RUNTIMES names them. Where a node has another path on the host than in
the container, it is shown as HOST:CONTAINER. The devices of claims of Kubernetes, which set variables only, have the
claim in its place. The exit code is 3 if a spec of ours is refused or in conflict, or a container would get another
LPU's node.`,
		Example: `  lpuctl cdi list
  lpuctl cdi list -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own, err := a.LocateSpec()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), specReadLimit)
			defer cancel()
			v := specValidator(ctx, a, own, readHardware(ctx, a))
			devices, findings, err := v.Resolve(ctx, specDirs(a))
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cdi.ErrCrash) {
				return cli.WithRemedy(err, "lpuctl cdi validate names the file")
			}
			if err != nil {
				return err
			}
			wrong, err := v.Effective(specDirs(a))
			if err != nil {
				return err
			}
			findings = append(findings, wrong...)
			a.Report(findings)
			if err := writeResolved(a, devices, findings, f); err != nil || !findings.HasErrors() {
				return err
			}
			return cli.Found()
		},
	}
	a.SpecDirFlag(cmd)
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

// readHardware reads what specs are held against; nil if it cannot be read.
func readHardware(ctx context.Context, a *app) *discovery.Inventory {
	inv, err := a.scanWith(ctx, discovery.Options{Management: true})
	if err != nil { // a node whose sysfs cannot be read has specs all the same
		a.Log.Warn("the devices are not held against the hardware", "error", err)
	}
	return inv
}

// specDirs are the directories runtimes read, the highest priority last.
func specDirs(a *app) []string {
	dirs := []string{"/etc/cdi", cdi.DefaultSpecDir}
	real := func(dir string) string { // /var/run is a link on most machines
		path, _ := a.Root.Resolve(dir)
		return path
	}
	own := a.Config.CDI.SpecDir
	if !slices.ContainsFunc(dirs, func(dir string) bool { return real(dir) == real(own) }) {
		dirs = append(dirs, filepath.Clean(own))
	}
	return dirs
}

func writeResolved(a *app, devices []cdi.Resolved, findings finding.List, f cli.Format) error {
	switch f {
	case cli.FormatJSON, cli.FormatYAML:
		return a.WriteDocument(f, struct {
			cli.Header
			Devices  []cdi.Resolved `json:"devices"`
			Findings finding.List   `json:"findings"`
		}{cli.NewHeader("DeviceList"), devices, cli.EmptyNotNull(findings)})
	case cli.FormatName:
		return a.WriteLines(cli.Each(devices, func(d cdi.Resolved) string { return d.Name })...)
	}
	if len(devices) == 0 {
		a.Say("no device of kind %s in %s", a.Config.CDI.Kind, strings.Join(specDirs(a), ", "))
		return nil
	}
	columns := []string{"DEVICE", "NODES", "FILE"}
	differ := slices.ContainsFunc(devices, func(d cdi.Resolved) bool { return d.Runtimes != nil })
	if differ {
		columns = append(columns, "RUNTIMES")
	}
	var rows [][]string
	for _, d := range devices {
		nodes := strings.Join(d.Nodes, ",")
		if d.Claim != nil {
			nodes = "claim " + d.Claim.String()
		} else if len(d.Nodes) > 2 {
			nodes = cli.Plural(len(d.Nodes), "node")
		}
		row := []string{d.Name, nodes, d.File}
		if differ {
			row = append(row, cmp.Or(strings.Join(d.Runtimes, ", "), "all"))
		}
		rows = append(rows, row)
	}
	return a.WriteTable(columns, rows)
}
