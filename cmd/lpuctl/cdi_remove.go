package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

func newRemoveCommand(a *app) *cobra.Command {
	var claims []string
	cmd := &cobra.Command{
		Use:     "remove",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove our spec file, or what is left of a claim",
		Long: `remove removes the spec file that cdi refresh writes, and no other.

With --claim it forgets claims of Kubernetes instead: their CDI files, and the records by which their LPUs are held.
lpuctl-dra does so itself when a pod has ended. It is for claims whose pods ended when lpuctl-dra was no longer
there. Do not name one that a pod has: its LPUs could be given to a second pod.`,
		Example: `  sudo lpuctl cdi remove
  sudo lpuctl cdi remove --spec-dir /etc/cdi
  sudo lpuctl cdi remove --claim team/trainer   # or the uid; all: every claim`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.LocateSpec()
			if err != nil {
				return err
			}
			if len(claims) > 0 {
				return removeClaims(cmd.Context(), a, claims)
			}
			return removeSpec(cmd.Context(), &a.Terminal, file)
		},
	}
	cmd.Flags().StringSliceVar(&claims, "claim", nil, "forget this `CLAIM` instead: NAMESPACE/NAME, a uid, or all")
	a.SpecDirFlag(cmd)
	return cmd
}

func removeSpec(ctx context.Context, t *cli.Terminal, file cdi.File) error {
	if _, err := os.Stat(filepath.Dir(file.Path)); errors.Is(err, fs.ErrNotExist) {
		t.Say("%s", removal(file, false))
		return nil
	}
	held, err := file.Hold(ctx)
	if err != nil {
		return err
	}
	defer held.Release()
	removed, err := held.Remove()
	if err == nil {
		t.Say("%s", removal(file, removed))
	}
	return err
}

// removal says what became of the file.
func removal(file cdi.File, removed bool) string {
	if removed {
		return "removed " + file.Path
	}
	return file.Path + ": not there, nothing to remove"
}

// removeClaims forgets the claims of these names.
func removeClaims(ctx context.Context, a *app, names []string) error {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return err
	}
	of, err := a.Pods(memory)
	if err != nil {
		return err
	}
	s := of.Claims()
	known, err := s.Known()
	if err != nil {
		return err
	}
	called := func(r *claim.Record, name string) bool { return name == r.UID || name == r.Namespace+"/"+r.Name }
	for _, name := range names {
		i := slices.IndexFunc(known, func(r *claim.Record) bool { return called(r, name) })
		if i < 0 && name != "all" {
			return cli.Fail(cli.ExitFailed, "see the claims: lpuctl cdi list", "there is no claim %s on this node", name)
		}
	}
	for _, r := range known {
		if !slices.ContainsFunc(names, func(name string) bool { return name == "all" || called(r, name) }) {
			continue
		}
		if err := s.Unprepare(ctx, r.UID); err != nil {
			return err
		}
		a.Say("forgot claim %s", r)
	}
	return nil
}
