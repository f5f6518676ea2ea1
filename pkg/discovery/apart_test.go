package discovery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/long"
	"github.com/hyperaccel/lpuctl/test/machines"
)

// TestApartFindsTheSame: what another process reads of cards makes the same inventory, whatever is wrong with one of them. It reads the
// configuration space too, and so sees a reset behind the driver. Of cases one in three is tried, and all where LPUCTL_LONG is set.
func TestApartFindsTheSame(t *testing.T) {
	for p, profile := range simulate.Profiles() {
		for k, kind := range append(simulate.FaultKinds(), simulate.FaultKind{}) {
			if !long.Takes(p+k, 3) {
				continue
			}
			node := simulate.Node{Profile: profile.Name, LPUs: 2}
			if kind.Name != "" {
				node.Faults = []simulate.Fault{{Name: kind.Name, Index: 0}}
			}
			name := fmt.Sprint(profile.Name, " ", kind.Name)
			root := t.TempDir() + "/node"
			if _, err := node.Write(root); err != nil {
				continue // LPUs of this profile do not show it
			}
			options := discovery.Options{Models: machines.Bertha(), CardDeadline: time.Minute}
			want := scan(t, root, options)
			options.Apart = &discovery.Apart{}
			for range 2 { // of which none is in the way of the next
				got := scan(t, root, options)
				if kind.Name == "reset-behind-driver" {
					if !got.LPUs[0].Reasons.Has(finding.ResetBehindDriver) {
						t.Errorf("%s: %v", name, got.LPUs[0].Reasons)
					}
					continue
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(health.Reading{}, "Command")); diff != "" {
					t.Errorf("%s: in this process (-), in another (+):\n%s", name, diff)
				}
			}
		}
	}
}
