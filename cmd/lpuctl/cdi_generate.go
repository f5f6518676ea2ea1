package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

func newGenerateCommand(a *app) *cobra.Command {
	var o specOptions
	var f cli.Format
	var output string
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Print the CDI spec of this node's LPUs",
		Long: `generate prints the CDI spec, or writes it to a file of your choice; cdi refresh puts it where runtimes
look. In a directory that runtimes read, a file is refused while another one defines the same devices: with two
of them runtimes hand out neither. The ring tables that the spec mounts into containers are written to
` + cdi.RingTableDir + `. The exit code is 3 if an LPU was left out because it has no
node known to be its own, or a ring table because it cannot be written, 4 if there is no LPU.`,
		Example: `  lpuctl cdi generate
  lpuctl cdi generate --output lpu.yaml
  lpuctl cdi generate --device lpu0 --cdi-version 0.6.0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := formatByName(cmd, &f, output); err != nil {
				return err
			}
			if output == "-" {
				output = ""
			}
			m, err := o.make(cmd.Context(), a, toUse)
			if err != nil {
				return err
			}
			a.Report(m.findings)
			if m.spec == nil {
				return m.end
			}
			text, err := cli.MarshalDocument(f, m.spec)
			if err != nil {
				return err
			}
			if output == "" {
				_, err = a.Out.Write(text)
			} else if err = writeSpec(a, output, m.spec, text); err == nil {
				a.Say("wrote %s: %s, cdiVersion %s", output, cli.Plural(len(m.spec.Devices), "device"), m.spec.Version)
			}
			return cmp.Or(err, m.end)
		},
	}
	a.FormatFlag(cmd, &f, cli.FormatJSON, cli.FormatYAML)
	o.flags(a, cmd)
	cmd.Flags().StringArrayVar(&o.Devices, "device", nil, "only the device of this `NAME` or PCI address (repeatable)")
	cmd.Flags().StringVar(&output, "output", "", "write to `FILE` instead of stdout, which is -")
	_ = cmd.RegisterFlagCompletionFunc("device", completeLPUs(a))
	return cmd
}

// writeSpec writes the text of a spec into a file. It refuses, with a *cdi.Conflict, what
// would take devices from every container.
func writeSpec(a *app, path string, spec *specs.Spec, text []byte) error {
	dir := filepath.Dir(path)
	if isSpecDir(a, dir) {
		if err := cdi.Clash(path, spec); err != nil {
			return err
		}
	}
	if err := wholefile.MakeDir(dir); err != nil {
		return err
	}
	return wholefile.Replace(path, text)
}

// isSpecDir reports whether runtimes read a directory.
func isSpecDir(a *app, dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && slices.ContainsFunc(specDirs(a), func(specDir string) bool {
		path, _ := a.Root.Resolve(specDir)
		other, err := os.Stat(path)
		return err == nil && os.SameFile(info, other)
	})
}

// formatByName lets the output file's ending choose the format, and refuses one that says
// otherwise than --format: runtimes read a file by its ending.
func formatByName(cmd *cobra.Command, f *cli.Format, output string) error {
	if output == string(cli.FormatJSON) || output == string(cli.FormatYAML) {
		remedy := "use -o " + output + "; --output ./" + output + " writes a file of that name"
		return cli.Fail(cli.ExitUsage, remedy, "--output takes a file, and %s is a format", output)
	}
	byName := map[string]cli.Format{".json": cli.FormatJSON, ".yaml": cli.FormatYAML}[filepath.Ext(output)]
	if byName == "" || byName == *f {
		return nil
	}
	if cmd.Flags().Changed("format") {
		return cli.Usage("--output %s ends in %s, but --format is %s", output, filepath.Ext(output), *f)
	}
	*f = byName
	return nil
}
