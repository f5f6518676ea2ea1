package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/runtimes"
)

func newValidateCommand(a *app) *cobra.Command {
	var f format
	var targets, devices []string
	cmd := &cobra.Command{
		Use:   "validate [FILE|DIR]",
		Short: "Tell whether containers will get what the CDI specs promise",
		Long: `validate reads spec files as runtimes do, with the same library, and then looks for what the library accepts and
should not: paths that are not absolute, variables that are set twice, nodes that are gone or are another card's by
now, files that some users cannot read, two files that define one device. By default it checks what runtimes would
read on this node: /etc/cdi and /var/run/cdi. Every finding is explained in docs/findings.md.

The exit code is 3 if there is an error or a warning.`,
		Example: `  lpuctl cdi validate
  lpuctl cdi validate ./spec.json
  lpuctl cdi validate --device hyperaccel.ai/lpu=lpu0     # podman says "unresolvable CDI devices": why?
  lpuctl cdi validate --target podman=4.3.1,containerd=1.7.5
  lpuctl cdi validate -o json | jq -r '.findings[] | .id'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			findings, err := a.validate(cmd.Context(), args, targets, devices)
			if err != nil {
				return err
			}
			return a.writeFindings(findings, f)
		},
	}
	cmd.Flags().StringSliceVar(&targets, "target", nil, "say what these consumers cannot load: `CONSUMER=VERSION`, such as podman=4.3.1")
	cmd.Flags().StringSliceVar(&devices, "device", nil, "say why a runtime cannot resolve this `DEVICE` (where directories are checked)")
	var consumers []string
	for _, name := range runtimes.Consumers() {
		consumers = append(consumers, name+"=")
	}
	complete(cmd, "target", consumers...)
	a.specDirFlag(cmd)
	a.ringTableFlag(cmd)
	formatFlag(cmd, &f, formatTable, formatJSON, formatYAML)
	return cmd
}

func (a *app) validate(ctx context.Context, args, targets, devices []string) (finding.List, error) {
	v := cdi.Validator{Root: string(a.root), Devices: devices}
	for _, text := range targets {
		consumer, version, _ := strings.Cut(text, "=")
		newest, err := runtimes.MaxCDI(consumer, version)
		if err != nil {
			return nil, usage("--target %s: %v", text, err)
		}
		v.Targets = append(v.Targets, cdi.Target{Consumer: consumer, Release: version, Newest: newest})
	}
	if err := a.loadConfig(); err != nil {
		return nil, err
	}
	v.Kind = a.config.CDI.Kind
	// A node whose sysfs cannot be read has specs all the same.
	if inv, err := a.scan(ctx, discovery.Options{Management: true}); err == nil {
		v.Inventory = inv
	} else {
		a.log.Warn("the devices are not held against the hardware", "error", err)
	}
	if len(args) == 0 {
		return v.Dirs(a.specDirs())
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return v.DirsAsTyped(args[0])
	}
	return v.File(args[0]), nil
}

// writeFindings shows findings to people on stderr, or to programs as a document, and ends with found if there is more
// than notes.
func (a *app) writeFindings(findings finding.List, f format) error {
	if f != formatTable {
		document := struct {
			APIVersion string       `json:"apiVersion"`
			Kind       string       `json:"kind"`
			Findings   finding.List `json:"findings"`
		}{discovery.APIVersion, "SpecCheck", emptyNotNull(findings)}
		if err := writeDocument(a.out, f, document); err != nil {
			return err
		}
	} else {
		a.report(findings)
	}
	result := foundIn(findings)
	if result == nil && f == formatTable {
		a.say("nothing wrong")
	}
	return result
}
