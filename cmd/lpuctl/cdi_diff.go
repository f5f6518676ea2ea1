package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newDiffCommand(a *app) *cobra.Command {
	var f cli.Format
	var o specOptions
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the spec in place with the hardware as it is now",
		Long: `diff prints how our spec file differs from the one that cdi refresh would write now, and how the files of
claims of Kubernetes differ from those that lpuctl-dra would write. Where no spec is in place, one line says so.
Nothing is changed. The exit code is 3 if one differs, or another file defines one of our devices too or leads it to another LPU's node.`,
		Example: `  lpuctl cdi diff
  lpuctl cdi diff -o json | jq -r '.changes[] | "\(.change) \(.device)"'
  lpuctl --quiet cdi diff > /dev/null || sudo lpuctl cdi refresh`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.make(cmd.Context(), a, toShow)
			if err != nil {
				return err
			}
			a.Report(m.findings) // LPUs that are left out are no difference
			file, err := a.LocateSpec()
			if err != nil {
				return err
			}
			wrong, err := reportOthers(cmd.Context(), a, file, m)
			if err != nil {
				return err
			}
			return showDiff(&a.Terminal, file, m, wrong, f)
		},
	}
	a.SpecDirFlag(cmd)
	o.flags(a, cmd)
	a.FormatFlag(cmd, &f)
	return cmd
}

// drift is how the spec in place differs from the hardware.
type drift struct {
	cli.Header
	Path    string        `json:"path"`
	Drift   bool          `json:"drift"`
	Changes []driftChange `json:"changes"` // device by device; none where only the file's form differs
	Claims  []claimDrift  `json:"claims"`  // files of claims that differ
}

// claimDrift is how the file of a claim differs from one that would be written now.
type claimDrift struct {
	Path    string        `json:"path"`
	Claim   string        `json:"claim"` // namespace/name
	Changes []driftChange `json:"changes"`

	have, want []byte
}

type driftChange struct {
	Change string        `json:"change"` // added, removed or changed: what cdi refresh would do
	Device string        `json:"device"`
	From   *specs.Device `json:"from,omitempty"`
	To     *specs.Device `json:"to,omitempty"`
}

// reportOthers reports what containers get by other files than ours and should not, and
// whether there is any.
func reportOthers(ctx context.Context, a *app, file cdi.File, m *made) (wrong bool, err error) {
	findings, err := specValidator(ctx, a, file, m.inv).Effective(specDirs(a))
	findings = slices.DeleteFunc(findings, func(f finding.Finding) bool { return f.File == file.Path })
	a.Report(findings)
	return len(findings) > 0, err
}

func showDiff(t *cli.Terminal, file cdi.File, m *made, wrong bool, f cli.Format) error {
	have, want, conflict, err := compare(file, m.spec)
	if err != nil {
		return err
	}
	if conflict != nil {
		wrong = true
		name := filepath.Base(conflict.File)
		t.Report(finding.List{finding.New(finding.SpecConflict, name, conflict.Error(), cli.RemedyFor(conflict))})
	}
	claims, err := claimDrifts(filepath.Dir(file.Path), m.inv)
	if err != nil {
		return err
	}
	differs := !bytes.Equal(have, want) || len(claims) > 0
	if f == cli.FormatTable {
		err = showWhole(t, file.Path, have, want, m.spec)
		for _, c := range claims {
			err = cmp.Or(err, showChange(t, c.Path, c.have, c.want))
		}
	} else {
		document := drift{cli.NewHeader("Diff"), file.Path, differs, changes(cdi.Devices(have), cdi.Devices(want)), claims}
		err = t.WriteDocument(f, document)
	}
	if err == nil && (differs || wrong) {
		err = cli.Found()
	}
	return err
}

// showWhole shows how the spec differs. Where there is none in place, all of it would be
// an addition, and a line says so.
func showWhole(t *cli.Terminal, path string, have, want []byte, spec *specs.Spec) error {
	if have != nil || want == nil {
		return showChange(t, path, have, want)
	}
	return t.WriteLines(fmt.Sprintf("%s: not there; lpuctl cdi refresh would write it, with %s (lpuctl cdi generate prints it)",
		path, cli.Plural(len(spec.Devices), "device")))
}

// claimDrifts are the files of claims in a directory that differ from those that would be
// written now.
func claimDrifts(dir string, inv *discovery.Inventory) ([]claimDrift, error) {
	list := []claimDrift{}
	files, claims, err := cdi.ClaimsIn(dir)
	for i, c := range claims {
		d := claimDrift{Path: files[i], Claim: c.String()}
		d.have, err = os.ReadFile(d.Path)
		if host.IsAbsent(err) { // the claim was given back in the meantime
			err = nil
			continue
		}
		if err != nil {
			return nil, err
		}
		spec, err := cdi.ClaimSpec(inv, *c, cdi.Options{})
		if err != nil {
			return nil, fmt.Errorf("%s: claim %s: %w", d.Path, c, err)
		}
		if d.want, err = cdi.Marshal(spec); err != nil {
			return nil, err
		}
		if d.Changes = changes(cdi.Devices(d.have), spec.Devices); !bytes.Equal(d.have, d.want) {
			list = append(list, d)
		}
	}
	return list, err
}

// changes compares devices by name, in the order of the names as they stand, the new ones
// last.
func changes(have, want []specs.Device) []driftChange {
	list := []driftChange{}
	for i, from := range have {
		to := named(want, from.Name)
		switch {
		case to == nil:
			list = append(list, driftChange{"removed", from.Name, &have[i], nil})
		case !reflect.DeepEqual(from, *to):
			list = append(list, driftChange{"changed", from.Name, &have[i], to})
		}
	}
	for i, to := range want {
		if named(have, to.Name) == nil {
			list = append(list, driftChange{"added", to.Name, nil, &want[i]})
		}
	}
	return list
}

// named is the device of a name; nil if there is none.
func named(devices []specs.Device, name string) *specs.Device {
	if i := slices.IndexFunc(devices, func(d specs.Device) bool { return d.Name == name }); i >= 0 {
		return &devices[i]
	}
	return nil
}
