package cdi

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMeaningsAreThoseOfThePage: docs/containers.md has the table that explain prints.
func TestMeaningsAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| variable | on the host | in the container |\n|---|---|---|\n"
	for _, m := range Meanings() {
		table += fmt.Sprintf("| %#q | %s | %s |\n", m.Variable, m.Host, m.Container)
	}
	if !strings.Contains(string(page), "\n"+table+"\n") {
		t.Errorf("docs/containers.md has not this table:\n%s", table)
	}
}

// TestEveryVariableHasAMeaning: explain tells the meaning of each variable that a container may get, and of no other.
func TestEveryVariableHasAMeaning(t *testing.T) {
	inv := fourLPUs(t, Options{})
	var told []string
	for _, words := range [][]string{{"lpu0"}, {"43:00.1"}, {"lpu0-1"}, {"lpu0", "lpu2"}, {"all"}} {
		e, err := Explain(inv, Options{}, words)
		if err != nil {
			t.Fatal(err)
		}
		var set, meant []string
		for _, v := range slices.Concat(e.Env, e.UseEnv) {
			if v.Source != "model orion-u55c" && !slices.Contains(set, v.Name) {
				set = append(set, v.Name)
			}
		}
		for _, m := range e.Meanings {
			meant = append(meant, m.Variable)
		}
		slices.Sort(set)
		slices.Sort(meant)
		if diff := cmp.Diff(set, meant); diff != "" {
			t.Errorf("%v: %s", words, diff)
		}
		told = append(told, meant...)
	}
	for _, m := range Meanings() {
		if !slices.Contains(told, m.Variable) {
			t.Errorf("no container gets %s", m.Variable)
		}
	}
}

// TestOneLPUIsTheContainersFirst: with one LPU a container is told that its index there is 0, whether or not a ring is known; a
// device by PCI address does not say so, because it may be one of several.
func TestOneLPUIsTheContainersFirst(t *testing.T) {
	for name, want := range map[string]string{
		"lpu2":    "LPU_DEVICE_INDEX=2 LPU_VISIBLE_DEVICES=2 LPU_RING_ORDER=0",
		"45:00.1": "",
	} {
		for _, ring := range []bool{true, false} {
			inv := fourLPUs(t, Options{})
			if !ring {
				inv.RingTable, inv.Rings = nil, nil
			}
			e, err := Explain(inv, Options{}, []string{name})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range e.Env {
				if strings.HasPrefix(v.Name, "LPU_") && v.Name != DriverVersion {
					got = append(got, v.String())
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, ring known: %t: got %v, want %s", name, ring, got, want)
			}
			if _, variables := Container(inv, inv.Cabled(), []int{2}); !slices.ContainsFunc(variables, func(v Variable) bool {
				return v.String() == "LPU_RING_ORDER=0"
			}) {
				t.Errorf("ring known: %t: Allocate's variables are %v", ring, variables)
			}
		}
	}
}

// TestSpecRunsAndFindsNothing: no hook, which runtimes would run as root, and no search path for programs or libraries, which would
// replace that of the image.
func TestSpecRunsAndFindsNothing(t *testing.T) {
	data, err := Marshal(mustSpec(t, fourLPUs(t, Options{}), Options{Management: true, Annotations: true}))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"hook", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH="} {
		if strings.Contains(string(data), word) {
			t.Errorf("the spec has %s", word)
		}
	}
}
