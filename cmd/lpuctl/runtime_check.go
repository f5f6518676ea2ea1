package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newRuntimeCheckCommand(a *app) *cobra.Command {
	var f cli.Format
	var o runtimes.Options
	w := resultWish{period: 5 * time.Minute}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether CDI is on in each container runtime, and how to turn it on",
		Long: `check asks a running containerd over its socket, and reads the config files and versions of containerd,
CRI-O, Docker, podman and nerdctl. Of each it says whether CDI is on now and after a restart, where that is
written, which directories are read for specs, and up to which cdiVersion. Where CDI is off it prints the
edit that turns it on. It changes nothing and runs no other program. Ask as root: others may not open the
socket, and then the files answer.

The containerd is the one that the kubelet is told to use, by the flags of the one that runs, by
/var/lib/kubelet/kubeadm-flags.env or by its config file; else the usual one. Its config is the one that it
runs with, or else that its systemd unit names. That of k3s, rke2, k0s or MicroK8s is looked at as well, by
its own name. A containerd whose CRI is disabled needs none, if no kubelet uses it: Docker does without.

"on" means that containerd's CRI starts with these files and has CDI on. Where files cannot tell, such as
of a snapshotter that is another program, the answer is unknown, and cri-not-judged says why.

--write-result leaves what it found of the runtime that the kubelet uses in ` + runtimes.ResultPath + `, for
the device plugin (lpuctl serve --on-cdi-off), which cannot ask the runtime. lpuctl-runtime-check.timer has that done. A result counts
for two periods, and in the same boot only.

The exit code is 3 if a runtime that is installed does not hand out LPUs, now or after a restart, or if that is not known.
What is not installed does not count, nor a CRI that is disabled and that no kubelet uses.`,
		Example: `  sudo lpuctl runtime check
  lpuctl runtime check --containerd-address /run/docker/containerd/containerd.sock
  lpuctl runtime check --containerd-config ./config.toml      # before it is put in place
  sudo lpuctl runtime check --write-result                    # as the timer does every five minutes
  lpuctl runtime check -o json | jq '.runtimes[] | {name, cdi}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.LoadConfig(); err != nil {
				return err
			}
			if err := w.validate(o); err != nil {
				return err
			}
			if o.ContainerdConfig != "" {
				if _, err := cli.ReadSmallFile(o.ContainerdConfig); err != nil {
					return err
				}
			}
			o.SpecDir = a.Config.CDI.SpecDir
			began := host.Now()
			found := runtimes.Check(cmd.Context(), string(a.Root), o)
			if w.wanted {
				if err := writeResult(cmd.Context(), a, runtimes.NewResult(found, began, w.period)); err != nil {
					return err
				}
			}
			if err := writeRuntimes(a, found, f); err != nil {
				return err
			}
			if slices.ContainsFunc(found, func(r runtimes.Runtime) bool { return !r.Confirmed() }) {
				return cli.Found()
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&w.wanted, "write-result", false, "leave the result in "+runtimes.ResultPath+" under the root")
	cmd.Flags().DurationVar(&w.period, "period", w.period, "with --write-result: how often (`TIME`) it is written; it counts twice as long")
	a.SpecDirFlag(cmd)
	cmd.Flags().StringVar(&o.ContainerdAddress, "containerd-address", "",
		"ask the containerd behind `SOCKET` (default: the kubelet's, or /run/containerd/containerd.sock under the root)")
	cmd.Flags().StringVar(&o.ContainerdConfig, "containerd-config", "",
		"read `FILE` as containerd's config (default: the one in use, or /etc/containerd/config.toml under the root)")
	a.FormatFlag(cmd, &f)
	return cmd
}

// resultWish says whether a result is wanted, and how often it is renewed.
type resultWish struct {
	wanted bool
	period time.Duration
}

func (w resultWish) validate(o runtimes.Options) error {
	switch {
	case w.period < runtimes.MinPeriod || w.period > runtimes.MaxPeriod:
		return cli.Usage("--period: %v is not a time between %v and %v", w.period, runtimes.MinPeriod, runtimes.MaxPeriod)
	case w.wanted && (o.ContainerdAddress != "" || o.ContainerdConfig != ""):
		return cli.Usage("--write-result is about the runtime that the kubelet uses, not about a socket or a file that is given")
	}
	return nil
}

// writeResult writes the result of a check that was not interrupted.
func writeResult(ctx context.Context, a *app, r *runtimes.Result) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	path, err := a.Root.Resolve(filepath.Dir(runtimes.ResultPath))
	if err != nil {
		return err
	}
	path = filepath.Join(path, filepath.Base(runtimes.ResultPath))
	switch err := r.Write(path, host.Now()); {
	case errors.Is(err, runtimes.ErrYounger):
		a.Say("%s stays: %v", path, err)
	case err != nil:
		return err
	default:
		a.Say("wrote %s", path)
	}
	return nil
}

func writeRuntimes(a *app, all []runtimes.Runtime, f cli.Format) error {
	if f.IsDocument() {
		return a.WriteDocument(f, struct {
			cli.Header
			Runtimes []runtimes.Runtime `json:"runtimes"`
		}{cli.NewHeader("RuntimeList"), all})
	}
	if len(all) == 0 {
		a.Say("no container runtime is installed under %s", a.Root)
		return nil
	}
	var rows [][]string
	for _, r := range all {
		where := ""
		if source := withID(r.Findings, finding.CDISource); len(source) > 0 {
			where = source[0].File
			if line := source[0].Line; line > 0 {
				where += fmt.Sprint(":", line)
			}
		}
		a.Report(slices.DeleteFunc(slices.Clone(r.Findings), func(f finding.Finding) bool { return f.ID == finding.CDISource }))
		rows = append(rows, []string{
			r.Name, r.Version, string(r.CDI), string(r.AfterRestart), r.MaxCDIVersion, strings.Join(r.SpecDirs, ","), string(r.Source), where,
		})
	}
	return a.WriteTable([]string{"RUNTIME", "VERSION", "CDI", "AFTER-RESTART", "MAX-CDI", "SPEC-DIRS", "SOURCE", "WHERE"}, rows)
}
