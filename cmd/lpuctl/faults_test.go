package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/long"
)

// TestEveryFault is what list and describe say of each fault that a node can be simulated with; of one in four with the race detector.
func TestEveryFault(t *testing.T) {
	const fine = "healthy usable"
	want := map[string]string{
		"orion/all-ones":             "unknown no-answer",
		"orion/link-x4":              fine + " link-degraded",
		"orion/power-lost":           "unhealthy power-lost",
		"orion/asleep":               fine + " asleep",
		"orion/aer-correctable":      fine, // only serve knows how fast it grew
		"orion/aer-nonfatal":         fine + " aer-nonfatal",
		"orion/aer-fatal":            fine + " aer-fatal",
		"orion/reset-behind-driver":  "unhealthy reset-behind-driver",
		"orion/bad-state":            "unhealthy bad-state",
		"orion/firewall":             "unhealthy firewall",
		"orion/not-calibrated":       "unhealthy not-calibrated",
		"orion/ecc":                  fine + " ecc-uncorrectable",
		"orion/hot":                  fine + " hot",
		"orion/no-host-memory":       fine + " no-host-memory",
		"orion/no-modalias":          fine,
		"orion/numa-unknown":         fine,
		"orion/unreadable":           fine + " unreadable-attribute",
		"orion/fifo":                 fine + " unreadable-attribute",
		"orion/unbound":              "unhealthy no-driver",
		"orion/vfio":                 "unhealthy passed-through",
		"orion/node-missing":         "unhealthy node-missing",
		"orion/node-mismatch":        "unhealthy node-mismatch",
		"orion/two-nodes":            "unhealthy bad-node",
		"orion/recovery":             "unhealthy recovery-shell",
		"orion/wide-domain":          fine,
		"orion/foreign":              fine,
		"bertha/all-ones":            "unknown no-answer",
		"bertha/power-lost":          "unhealthy power-lost",
		"bertha/asleep":              fine + " asleep",
		"bertha/bad-state":           "unhealthy bad-state",
		"bertha/ecc":                 fine + " ecc-uncorrectable",
		"bertha/hot":                 fine + " hot",
		"bertha/reset-behind-driver": "unhealthy reset-behind-driver",
	}
	for _, kind := range simulate.FaultKinds() {
		if _, ok := want["orion/"+kind.Name]; !ok {
			t.Errorf("%s is not in the table", kind.Name)
		}
	}
	for i, key := range slices.Sorted(maps.Keys(want)) {
		if !long.Takes(i, 1) {
			continue
		}
		says := want[key]
		t.Run(key, func(t *testing.T) {
			profile, fault, _ := strings.Cut(key, "/")
			root := filepath.Join(t.TempDir(), "node")
			made, err := (simulate.Node{Profile: profile, LPUs: 2, Faults: []simulate.Fault{{Name: fault, Index: 0}}}).Write(root)
			if err != nil {
				t.Fatal(err)
			}
			name := "lpu0"
			if fault == "wide-domain" { // its address is the last
				name = "lpu1"
			}
			if strings.HasPrefix(fault, "node-") && !made.DeviceNodes {
				says = fine
			}
			var inv discovery.Inventory
			document(t, &inv, root, "list", "-o", "json")
			i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Name == name })
			if got := condition(inv.LPUs[i]); got != says {
				t.Errorf("list says %s, want %s", got, says)
			}
			if got := condition(inv.LPUs[1-i]); got != fine {
				t.Errorf("list says of the other one %s", got)
			}
			var l discovery.LPU
			document(t, &l, root, "describe", name, "-o", "json")
			if got := condition(l); got != says {
				t.Errorf("describe says %s, want %s", got, says)
			}
		})
	}
}

// condition is the health of an LPU, whether it is usable, and the ids of the reasons.
func condition(l discovery.LPU) string {
	words := []string{string(l.Health)}
	if l.Usable {
		words = append(words, "usable")
	}
	var reasons []string
	for _, r := range l.Reasons {
		reasons = append(reasons, string(r.ID))
	}
	slices.Sort(reasons)
	return strings.Join(append(words, reasons...), " ")
}

// document runs a command and reads the document that it prints.
func document(t *testing.T, into any, root string, args ...string) {
	t.Helper()
	var out, said bytes.Buffer
	if code := run(t.Context(), append([]string{"--root", root}, args...), &out, &said, noEnvironment); code != 0 {
		t.Fatal(fmt.Sprintf("%v: exit code %d", args, code), &said)
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		t.Fatal(err)
	}
}
