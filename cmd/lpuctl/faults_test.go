package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// TestEveryFault is what list and describe say of each fault that a node can be simulated with. describe reads the sensors too.
func TestEveryFault(t *testing.T) {
	const fine = "healthy usable"
	want := map[string]struct{ list, describe string }{ // describe "": the same
		"orion/all-ones":             {list: "unknown no-answer"},
		"orion/link-x4":              {list: fine + " link-degraded"},
		"orion/power-lost":           {list: "unhealthy power-lost"},
		"orion/asleep":               {list: fine + " asleep"},
		"orion/aer-correctable":      {list: fine}, // only serve knows how fast it grew
		"orion/aer-nonfatal":         {list: fine + " aer-nonfatal"},
		"orion/aer-fatal":            {list: fine + " aer-fatal"},
		"orion/reset-behind-driver":  {list: fine}, // only serve reads config of a card that answers
		"orion/bad-state":            {list: "unhealthy bad-state"},
		"orion/firewall":             {fine, "unhealthy firewall"},
		"orion/not-calibrated":       {fine, "unhealthy not-calibrated"},
		"orion/ecc":                  {fine, fine + " ecc-uncorrectable"},
		"orion/hot":                  {fine, fine + " hot"},
		"orion/no-host-memory":       {list: fine + " no-host-memory"},
		"orion/no-modalias":          {list: fine},
		"orion/numa-unknown":         {list: fine},
		"orion/unreadable":           {list: fine + " unreadable-attribute"},
		"orion/fifo":                 {list: fine + " unreadable-attribute"},
		"orion/unbound":              {list: "unhealthy no-driver"},
		"orion/vfio":                 {list: "unhealthy passed-through"},
		"orion/node-missing":         {list: "unhealthy node-missing"},
		"orion/node-mismatch":        {list: "unhealthy node-mismatch"},
		"orion/two-nodes":            {list: "unhealthy bad-node"},
		"orion/recovery":             {list: "unhealthy recovery-shell"},
		"orion/wide-domain":          {list: fine},
		"orion/foreign":              {list: fine},
		"bertha/all-ones":            {list: "unknown no-answer"},
		"bertha/power-lost":          {list: "unhealthy power-lost"},
		"bertha/asleep":              {list: fine + " asleep"},
		"bertha/bad-state":           {list: "unhealthy bad-state"},
		"bertha/ecc":                 {fine, fine + " ecc-uncorrectable"},
		"bertha/hot":                 {fine, fine + " hot"},
		"bertha/reset-behind-driver": {list: fine},
	}
	for _, kind := range simulate.FaultKinds() {
		if _, ok := want["orion/"+kind.Name]; !ok {
			t.Errorf("%s is not in the table", kind.Name)
		}
	}
	for key, says := range want {
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
				says.list = fine
			}
			var inv discovery.Inventory
			document(t, &inv, root, "list", "-o", "json")
			i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Name == name })
			if got := condition(inv.LPUs[i]); got != says.list {
				t.Errorf("list says %s, want %s", got, says.list)
			}
			if got := condition(inv.LPUs[1-i]); got != fine {
				t.Errorf("list says of the other one %s", got)
			}
			if says.describe == "" {
				says.describe = says.list
			}
			var l discovery.LPU
			document(t, &l, root, "describe", name, "-o", "json")
			if got := condition(l); got != says.describe {
				t.Errorf("describe says %s, want %s", got, says.describe)
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
