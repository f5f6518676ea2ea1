package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
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
The exit code is 3 if the program ends with an error or computes over a cable that FILE does not have, and if
FILE has an error.`,
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
			if err := b.has(ids); err != nil {
				return err
			}
			return b.showReading(&a.Terminal, n, ids, f)
		},
	}
	a.FormatFlag(cmd, &f)
	cmd.Flags().IntVarP(&n, "count", "n", 1, "`NUMBER` of LPUs that the program asks for")
	cmd.Flags().StringSliceVar(&busy, "busy", nil, "`LPUS` that are in use or missing, by name or index")
	_ = cmd.RegisterFlagCompletionFunc("busy", completeLPUList(a))
	return cmd
}

// indices are the LPUs of a table that no node has to have, each named as lpu3 or 3.
func indices(words []string) (ids []int, err error) {
	for _, word := range words {
		id, err := strconv.ParseUint(strings.TrimPrefix(word, "lpu"), 10, 16)
		if err != nil || !slices.Contains([]string{ring.Name(int(id)), strconv.Itoa(int(id))}, word) {
			return nil, cli.Usage("--busy %s: expected a name (lpu3) or an index (3)", word)
		}
		ids = append(ids, int(id))
	}
	return ids, nil
}

// has returns an error if HyperDex can read the table and it has not all of these LPUs.
func (b *boundTable) has(lpus []int) error {
	for _, id := range lpus {
		if b.table != nil && b.table.Refused() == nil && !b.table.Has(id) {
			return cli.Fail(cli.ExitFailed, "name LPUs of the table", "--busy %s: %s has no such LPU", ring.Name(id), b.path)
		}
	}
	return nil
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

	Findings finding.List `json:"findings"` // about the table
}

// hop is a step from one LPU to the next.
type hop struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Side   string `json:"side"` // of From: right or left
	Cabled bool   `json:"cabled"`
}

// showReading prints what HyperDex makes of the table.
func (b *boundTable) showReading(t *cli.Terminal, n int, busy []int, f cli.Format) error {
	doc := readingDocument{Header: cli.NewHeader("RingReading"), File: b.path, Asked: n, Members: []string{}, Hops: []hop{}}
	doc.Findings = cli.EmptyNotNull(b.findings)
	end := doc.read(b, n, busy)
	var err error
	if f.IsDocument() {
		err = t.WriteDocument(f, doc)
	} else {
		t.Report(b.findings)
		err = doc.write(t)
	}
	return cmp.Or(err, end)
}

// read fills in what HyperDex makes of a table. The error is that with which the command
// ends.
func (doc *readingDocument) read(b *boundTable, n int, busy []int) error {
	if b.table == nil {
		doc.Error = "the table cannot be read"
		return cli.Fail(cli.ExitFound, "", "%s: cannot be read", b.path)
	}
	remedy := "lpuctl ring convert " + shell.Quoted(b.path) + " prints a table that HyperDex can use"
	if b.findings.HasErrors() {
		remedy = "lpuctl ring check " + shell.Quoted(b.path) + " says what is wrong with the table"
	}
	reading, err := b.table.Read(n, busy...)
	if err != nil {
		doc.Error = err.Error()
		if b.table.Refused() == nil {
			remedy = "ask for fewer LPUs, or wait until more that are cabled in a row are free"
		}
		return cli.Fail(cli.ExitFound, remedy, "%s: HyperDex ends with an error: %s", doc.File, doc.Error)
	}
	doc.fill(b.table, reading)
	for _, h := range doc.Hops {
		if !h.Cabled {
			return cli.Fail(cli.ExitFound, remedy, "%s: HyperDex computes over a cable that the table does not have: from %s on the %s to %s",
				doc.File, h.From, h.Side, h.To)
		}
	}
	if b.findings.HasErrors() {
		return cli.Found()
	}
	return nil
}

func (doc *readingDocument) fill(t *ring.Table, r ring.Reading) {
	doc.Shape = "line"
	if r.Ring {
		doc.Shape = "ring"
	}
	doc.Members = cli.Each(r.IDs, ring.Name)
	for _, h := range t.Hops(r) {
		side := "right"
		if h.Left {
			side = "left"
		}
		doc.Hops = append(doc.Hops, hop{ring.Name(h.From), ring.Name(h.To), side, h.Cabled})
	}
}

func (doc *readingDocument) write(t *cli.Terminal) error {
	if doc.Error != "" {
		return nil
	}
	t.Say("%s: HyperDex takes %s as a %s: %s", doc.File, cli.Plural(doc.Asked, "LPU"), doc.Shape, strings.Join(doc.Members, " "))
	var rows [][]string
	for i, member := range doc.Members {
		row := []string{member, "", "", ""} // the last one of a line has no next one
		if i < len(doc.Hops) {
			h := doc.Hops[i]
			row = []string{member, h.To, h.Side, cli.YesNo(h.Cabled)}
		}
		rows = append(rows, row)
	}
	return t.WriteTable([]string{"LPU", "NEXT", "SIDE", "CABLE"}, rows)
}
