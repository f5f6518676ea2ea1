package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// specReadLimit bounds the reading of spec directories, where other vendors' files lie too.
const specReadLimit = 5 * time.Second

func newCDIListCommand(a *app) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List our devices as runtimes resolve them, with the file that serves each",
		Long: `list reads the spec files as a runtime does, with the same library, from /etc/cdi and /var/run/cdi (and
the configured spec directory). Where a node has another path on the host than in the container, it is shown as
HOST:CONTAINER. The exit code is 3 if a spec of ours is refused or in conflict.`,
		Example: `  lpuctl cdi list
  lpuctl cdi list -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.loadConfig(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), specReadLimit)
			defer cancel()
			devices, findings, err := cdi.Resolve(ctx, string(a.root), a.specDirs(), a.config.CDI.Kind)
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cdi.ErrCrash) {
				return &exitError{code: exitFailed, err: err, remedy: "lpuctl cdi validate names the file"}
			}
			if err != nil {
				return err
			}
			a.report(findings)
			if err := a.writeResolved(devices, findings, f); err != nil || !findings.HasErrors() {
				return err
			}
			return found()
		},
	}
	a.specDirFlag(cmd)
	a.formatFlag(cmd, &f, formatTable, formatJSON, formatYAML, formatName)
	return cmd
}

// specDirs are the directories runtimes read, the highest priority last.
func (a *app) specDirs() []string {
	dirs := []string{"/etc/cdi", cdi.DefaultSpecDir}
	real := func(dir string) string { // /var/run is a link on most machines
		path, _ := a.root.Resolve(dir)
		return path
	}
	own := a.config.CDI.SpecDir
	if !slices.ContainsFunc(dirs, func(dir string) bool { return real(dir) == real(own) }) {
		dirs = append(dirs, filepath.Clean(own))
	}
	return dirs
}

func (a *app) writeResolved(devices []cdi.Resolved, findings finding.List, f format) error {
	switch f {
	case formatJSON, formatYAML:
		return writeDocument(a.out, f, struct {
			header
			Devices  []cdi.Resolved `json:"devices"`
			Findings finding.List   `json:"findings"`
		}{newHeader("DeviceList"), devices, emptyNotNull(findings)})
	case formatName:
		for _, d := range devices {
			if _, err := a.out.Write([]byte(d.Name + "\n")); err != nil {
				return err
			}
		}
		return nil
	}
	if len(devices) == 0 {
		a.say("no device of kind %s in %s", a.config.CDI.Kind, strings.Join(a.specDirs(), ", "))
		return nil
	}
	var rows [][]string
	for _, d := range devices {
		nodes := strings.Join(d.Nodes, ",")
		if len(d.Nodes) > 2 {
			nodes = plural(len(d.Nodes), "node")
		}
		rows = append(rows, []string{d.Name, nodes, d.File})
	}
	return a.writeTable([]string{"DEVICE", "NODES", "FILE"}, rows)
}
