package dra_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// BenchmarkLookAtRest is what the driver does once a second while nothing changes.
func BenchmarkLookAtRest(b *testing.B) {
	root := filepath.Join(b.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		b.Fatal(err)
	}
	inv, err := discovery.Scan(b.Context(), root, discovery.Options{})
	if err != nil {
		b.Fatal(err)
	}
	found := func(context.Context) (*discovery.Inventory, error) { return inv, nil }
	s := node.New(slog.New(slog.DiscardHandler)).Update(b.Context(), node.Spec{ReadOnly: true}, found)
	p := dra.Publisher{Options: dra.Options{Node: "n1"}, Held: func(pci.Address) string { return "" }}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := p.Look(s); err != nil {
			b.Fatal(err)
		}
	}
}
