package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

func newRingShowCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print the rings of this node's table, or of FILE held against this node",
		Long: `show prints the rings of this node's table, or of FILE held against this node, each in the order of its
cables: closed, or open where a cable is missing. An LPU without cables is alone.
The exit code is 3 if the table cannot be used.`,
		Example: `  lpuctl ring show
  lpuctl ring show table.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE:              onTable(a, func(b *boundTable) error { return b.showRings(&a.Terminal, f) }),
	}
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f)
	return cmd
}

// ringDocument is the rings of a table.
type ringDocument struct {
	cli.Header
	File  string      `json:"file"`
	Rings []shownRing `json:"rings"`
}

type shownRing struct {
	// ID is as the inventory has it; "" for an LPU by itself, which is on no ring.
	ID      string   `json:"id,omitempty"`
	Shape   string   `json:"shape"` // closed, open or alone
	Members []string `json:"members"`
}

// showRings prints the rings of the table.
func (b *boundTable) showRings(t *cli.Terminal, f cli.Format) error {
	shown := ringDocument{Header: cli.NewHeader("Ring"), File: b.path, Rings: []shownRing{}}
	rings := 0
	for _, r := range b.cabling.Rings {
		s := shownRing{ID: fmt.Sprintf("ring%d", rings), Shape: "closed"}
		switch {
		case len(r.Cards) == 1:
			s.ID, s.Shape = "", "alone"
			rings--
		case !r.Closed:
			s.Shape = "open"
		}
		rings++
		s.Members = cli.Each(r.Cards, func(card int) string { return b.inv.LPUs[card].Name })
		shown.Rings = append(shown.Rings, s)
	}
	if f.IsDocument() {
		return t.WriteDocument(f, shown)
	}
	return t.WriteTable([]string{"RING", "SHAPE", "LPUS"}, cli.Each(shown.Rings, func(s shownRing) []string {
		return []string{s.ID, s.Shape, strings.Join(s.Members, " ")}
	}))
}
