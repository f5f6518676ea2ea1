// Package machines makes simulated nodes for the tests of what reads them.
package machines

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Start starts a simulated node that can change, and returns its root too.
func Start(t testing.TB, node simulate.Node) (*simulate.Machine, string) {
	t.Helper()
	root := t.TempDir() + "/node"
	m, err := node.Start(root)
	Must(t, err)
	return m, root
}

// Must has a test end unless all steps were done.
func Must(t testing.TB, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
}

// Bertha are the models with the ids of simulated Bertha cards.
func Bertha() []discovery.Model {
	return discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{
		{Name: "bertha", Match: []discovery.Match{{Vendor: "20fb", Device: "0010"}}},
	})
}

// IDs are the ids of findings.
func IDs(findings finding.List) []string {
	var list []string
	for _, f := range findings {
		list = append(list, string(f.ID))
	}
	return list
}

// Sorted are the ids of findings, each once, in the order of the alphabet.
func Sorted(findings finding.List) string {
	all := IDs(findings)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}
