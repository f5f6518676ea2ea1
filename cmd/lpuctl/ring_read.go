package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func newRingReadCommand(a *app) *cobra.Command {
	var f cli.Format
	var n int
	var busy []string
	cmd := &cobra.Command{
		Use:   "read [FILE]",
		Short: "Say which LPUs HyperDex chooses by a ring table",
		Long: `read says which LPUs a HyperDex program that asks for a number of them chooses by FILE, in which order, as
a ring or as a line, and whether FILE has a cable for each step. Without FILE it is the table that HyperDex
opens, ` + discovery.HyperdexRingTable + `. FILE may be a node's table or a container's: the LPUs
are numbered as there. It is judged by itself, and so no LPU is looked at: name those that are busy or missing.
The rule is that of HyperDex 1.3, the newest that is public.
The exit code is 3 if the program ends with an error, or computes over a cable that FILE does not have.`,
		Example: `  lpuctl ring read -n 4
  lpuctl ring read table.json -n 4 --busy lpu0,lpu1
  lpuctl ring convert --to hyperdex --lpus 6,7,0,1 --output sub.json
  lpuctl ring read sub.json -n 4 -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE: func(_ *cobra.Command, args []string) error {
			if n < 1 {
				return cli.Usage("-n %d: at least one LPU", n)
			}
			ids, err := indices(busy)
			if err != nil {
				return err
			}
			path, err := a.Root.Resolve(discovery.HyperdexRingTable)
			if len(args) > 0 {
				path, err = args[0], nil
			}
			if err != nil {
				return err
			}
			b, err := readTable(path)
			if err != nil {
				return err
			}
			return a.showReading(b, n, ids, f)
		},
	}
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML)
	cmd.Flags().IntVarP(&n, "count", "n", 1, "`NUMBER` of LPUs that the program asks for")
	cmd.Flags().StringSliceVar(&busy, "busy", nil, "`LPUS` that are in use or missing, by name or index")
	_ = cmd.RegisterFlagCompletionFunc("busy", a.completeLPUList)
	return cmd
}

// indices are the LPUs of a table that no node has to have, each named as lpu3 or 3.
func indices(words []string) (ids []int, err error) {
	for _, word := range words {
		id, err := strconv.ParseUint(strings.TrimPrefix(word, "lpu"), 10, 16)
		if err != nil {
			return nil, cli.Usage("--busy %s: expected a name (lpu3) or an index (3)", word)
		}
		ids = append(ids, int(id))
	}
	return ids, nil
}

// readingDocument is what HyperDex makes of a table.
type readingDocument struct {
	cli.Header
	File    string   `json:"file"`
	Asked   int      `json:"asked"`
	Shape   string   `json:"shape,omitempty"` // ring or line; absent: the program ends with an error
	Members []string `json:"members"`         // in the order in which the program uses them
	Hops    []hop    `json:"hops"`
	Error   string   `json:"error,omitempty"` // why the program ends
}

// hop is a step from one LPU to the next.
type hop struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Side   string `json:"side"` // of From: right or left
	Cabled bool   `json:"cabled"`
}

func (a *app) showReading(b *boundTable, n int, busy []int, f cli.Format) error {
	if b.table == nil {
		a.Report(b.findings)
		return cli.Fail(cli.ExitFound, "", "%s: cannot be read", b.path)
	}
	doc := readingDocument{Header: cli.NewHeader("RingReading"), File: b.path, Asked: n, Members: []string{}, Hops: []hop{}}
	reading, err := b.table.Read(n, busy...)
	if err != nil {
		doc.Error = err.Error()
	} else {
		doc.fill(b.table, reading)
	}
	if f.IsDocument() {
		err = cli.WriteDocument(a.Out, f, doc)
	} else {
		err = a.writeReading(doc)
	}
	if err != nil {
		return err
	}
	return doc.judge()
}

func (doc *readingDocument) fill(t *ring.Table, r ring.Reading) {
	doc.Shape = "line"
	if r.Ring {
		doc.Shape = "ring"
	}
	for _, id := range r.IDs {
		doc.Members = append(doc.Members, lpuOf(id))
	}
	for _, h := range t.Hops(r) {
		side := "right"
		if h.Left {
			side = "left"
		}
		doc.Hops = append(doc.Hops, hop{lpuOf(h.From), lpuOf(h.To), side, h.Cabled})
	}
}

func lpuOf(id int) string { return "lpu" + strconv.Itoa(id) }

func (a *app) writeReading(doc readingDocument) error {
	if doc.Error != "" {
		return nil
	}
	a.Say("%s: HyperDex takes %s as a %s: %s", doc.File, cli.Plural(doc.Asked, "LPU"), doc.Shape, strings.Join(doc.Members, " "))
	var rows [][]string
	for i, member := range doc.Members {
		row := []string{member, "", "", ""} // the last one of a line has no next one
		if i < len(doc.Hops) {
			h := doc.Hops[i]
			row = []string{member, h.To, h.Side, map[bool]string{true: "yes", false: "no"}[h.Cabled]}
		}
		rows = append(rows, row)
	}
	return a.WriteTable([]string{"LPU", "NEXT", "SIDE", "CABLE"}, rows)
}

// judge is the error that the command ends with.
func (doc readingDocument) judge() error {
	if doc.Error != "" {
		return cli.Fail(cli.ExitFound, "", "%s: HyperDex ends with an error: %s", doc.File, doc.Error)
	}
	for _, h := range doc.Hops {
		if !h.Cabled {
			return cli.Fail(cli.ExitFound, "lpuctl ring check says what is wrong with the table",
				"%s: HyperDex computes over a cable that the table does not have: from %s on the %s to %s", doc.File, h.From, h.Side, h.To)
		}
	}
	return nil
}
