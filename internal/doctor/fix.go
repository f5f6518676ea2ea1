package doctor

import (
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Fix is what is done about one finding.
type Fix struct {
	Link    Link
	Finding finding.Finding
	// Commands are those of the remedy. nil: it is done by hand.
	Commands []string
	// Kept is why the commands are not run: "lpu3 is in use by train(4711)"; "": they are.
	Kept string
}

// IsOurs reports whether all commands are of lpuctl, which knows another root than "/".
func (f *Fix) IsOurs() bool {
	return !slices.ContainsFunc(f.Commands, func(c string) bool { return !strings.HasPrefix(c, "lpuctl ") })
}

// Fixes returns what to do about all that is broken, in the order of the links. What only
// follows is left out, and a command stands once. inUse says who uses what a finding is
// about; "": no one.
func (d *Diagnosis) Fixes(inUse func(subject string) string) (fixes []Fix) {
	var seen []string
	for _, s := range d.Steps {
		if s.State != Broken {
			continue
		}
		for _, f := range s.Findings {
			if f.Severity != finding.Error {
				continue
			}
			fix := Fix{Link: s.Link, Finding: f}
			all := f.Commands()
			for _, command := range all {
				if !slices.Contains(seen, command) {
					seen = append(seen, command)
					fix.Commands = append(fix.Commands, command)
				}
			}
			if len(all) > 0 && len(fix.Commands) == 0 {
				continue // another finding has them
			}
			fix.Kept = inUse(f.Subject)
			fixes = append(fixes, fix)
		}
	}
	return fixes
}
