package discovery

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestFunctionsThatVanish: a function that is gone when it is read is looked for once more, and what it was is not guessed.
func TestFunctionsThatVanish(t *testing.T) {
	third := pci.Address{Bus: 0x45, Function: 1}
	for name, c := range map[string]struct {
		seen   []pci.Address
		back   int  // the list for which it is there again; 0: never
		entry  bool // its entry stays in the list, and leads nowhere
		lists  int
		lpus   int
		reason string // of the third LPU
	}{
		"for a moment":      {back: 2, lists: 2, lpus: 8},
		"for good":          {lists: 2, lpus: 7},
		"while it is known": {seen: []pci.Address{third}, lists: 1, lpus: 8, reason: "gone"},
		"but its entry":     {entry: true, lists: 2, lpus: 8, reason: "gone"}, // the management function tells that it is an LPU
	} {
		t.Run(name, func(t *testing.T) {
			root := plant.Capture(t, u55c)
			entry, away := filepath.Join(root, pci.Devices, third.String()), filepath.Join(root, "away")
			tree, err := host.Root(root).Open()
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			s := newScan(tree, Options{Models: captureModels(), Seen: c.seen})
			lists := 0
			s.names = func(dir string) ([]string, error) {
				lists++
				switch lists {
				case 1:
					defer func() { // after the names were read
						err := os.Rename(entry, away)
						if err == nil && c.entry {
							err = os.Symlink("nowhere", entry)
						}
						if err != nil {
							t.Error(err)
						}
					}()
				case c.back:
					if err := os.Rename(away, entry); err != nil {
						t.Error(err)
					}
				}
				return tree.Names(dir)
			}
			inv, err := s.run(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if lists != c.lists || len(inv.LPUs) != c.lpus {
				t.Errorf("%d LPUs in %d lists", len(inv.LPUs), lists)
			}
			if c.reason != "" && (inv.LPUs[2].Address != third || string(inv.LPUs[2].Reasons[0].ID) != c.reason) {
				t.Errorf("third LPU: %+v", inv.LPUs[2])
			}
			if err := inv.Undecided(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestIDsFromElsewhere(t *testing.T) {
	user := idSet{"10ee", "505d", "10ee", "000e", "120000"}
	for text, want := range map[string]idSet{
		"pci:v000010EEd0000505Dsv000010EEsd0000000Ebc12sc00i00": user,
		"pci:v000010EEd0000505Dsv000010EEsd0000000Ebc12sc00":    {},
		"pci:v000110EEd0000505Dsv000010EEsd0000000Ebc12sc00i00": {},
		"pci:v-00010EEd0000505Dsv000010EEsd0000000Ebc12sc00i00": {},
		"usb:v1D6Bp0002d0618dc09dsc00dp01ic09isc00ip00in00":     {},
		"": {},
	} {
		if got := idsOfModalias(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for text, want := range map[string]idSet{
		"DRIVER=xocl\nPCI_CLASS=120000\nPCI_ID=10EE:505D\nPCI_SUBSYS_ID=10EE:000E\nPCI_SLOT_NAME=0000:44:00.1": user,
		"PCI_CLASS=C0330\nPCI_ID=10EE\n":                   {idVendor: "10ee", idClass: "0c0330"},
		"PCI_CLASS=1000000\nPCI_ID=110EE:x\nPCI_SUBSYS_ID": {},
		"": {},
	} {
		if got := idsOfUevent(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzIDsFromElsewhere(f *testing.F) {
	f.Add("pci:v000010EEd0000505Dsv000010EEsd0000000Ebc12sc00i00")
	f.Add("PCI_CLASS=120000\nPCI_ID=10EE:505D\nPCI_SUBSYS_ID=10EE:000E")
	f.Fuzz(func(t *testing.T, text string) {
		for _, ids := range []idSet{idsOfModalias(text), idsOfUevent(text)} {
			for attribute, id := range ids {
				digits := 4
				if attribute == idClass {
					digits = 6
				}
				if id != "" && (!isHex(id, digits) || strings.ToLower(id) != id) {
					t.Errorf("%q: %s is %q", text, idAttributes[attribute], id)
				}
			}
		}
		if ids := idsOfModalias(text); ids != (idSet{}) && slices.Contains(ids[:], "") {
			t.Errorf("%q: half of a modalias counts: %v", text, ids)
		}
	})
}
