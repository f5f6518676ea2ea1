package main

import (
	"cmp"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

func newRefreshCommand(a *app) *cobra.Command {
	var o cdi.Options
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "refresh",
		Short: "Write the CDI spec where runtimes look",
		Long: `refresh makes the spec of the LPUs that are here now and puts it in place as a whole: a program that reads it
meanwhile sees the old file or the new one. It renames a fresh file in even when nothing changed, because
that makes runtimes forget device numbers they remember. If there is no LPU, our file is removed. If the
node cannot be read, nothing is touched. A file that was written for another kind stays, with a warning.

The exit code is 3 if an LPU was left out because it has no node known to be its own, 4 if there is no LPU.`,
		Example: `  sudo lpuctl cdi refresh
  lpuctl cdi refresh --dry-run         # what would change
  sudo lpuctl cdi refresh --spec-dir /etc/cdi`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, result, err := a.makeSpec(cmd, o)
			if err != nil {
				return err
			}
			file, err := a.locateSpec()
			if err != nil {
				return err
			}
			if spec != nil {
				a.report(file.OldKinds(spec))
			}
			if !dryRun {
				return cmp.Or(a.applySpec(cmd, file, spec), result)
			}
			have, want, err := compare(file, spec)
			if err != nil {
				return err
			}
			return cmp.Or(a.showChange(file.Path, have, want), result)
		},
	}
	a.specDirFlag(cmd)
	a.ringTableFlag(cmd)
	specFlags(cmd, &o)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the difference to the file in place, and change nothing")
	return cmd
}

// applySpec writes the spec, or removes the file if there is none to write.
func (a *app) applySpec(cmd *cobra.Command, file cdi.File, spec *specs.Spec) error {
	if spec == nil {
		return a.removeSpec(cmd, file)
	}
	if err := file.Write(cmd.Context(), spec); err != nil {
		return err
	}
	a.say("wrote %s: %s, cdiVersion %s", file.Path, plural(len(spec.Devices), "device"), spec.Version)
	return nil
}

// compare returns the bytes of the spec in place and of the one that would replace it; nil where there is none.
func compare(file cdi.File, spec *specs.Spec) (have, want []byte, err error) {
	have, err = file.Read()
	if err == nil && spec != nil {
		want, err = cdi.Marshal(spec)
	}
	return have, want, err
}

func (a *app) showChange(path string, have, want []byte) error {
	from, to := path, path+" (new)"
	if have == nil {
		from = "/dev/null"
	}
	if want == nil {
		to = "/dev/null"
	}
	change := diff.Diff(from, have, to, want)
	if len(change) == 0 {
		a.say("%s: nothing would change", path)
	}
	_, err := a.out.Write(change)
	return err
}
