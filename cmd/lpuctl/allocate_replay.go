package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// loggedDecision is a line of the log of `lpuctl serve --log-format json`.
type loggedDecision struct {
	Message     string   `json:"msg"`
	Time        string   `json:"time"`
	Size        int      `json:"size"`
	Available   []string `json:"available"`
	MustInclude []string `json:"mustInclude"`
	Unhealthy   []string `json:"unhealthy"` // whose cables were dead
	Chosen      []string `json:"chosen"`
}

type replayDocument struct {
	cli.Header
	Decisions []replayed `json:"decisions"`
}

// replayed is a decision that was made again.
type replayed struct {
	Line   int      `json:"line"`
	Time   string   `json:"time,omitempty"`
	Size   int      `json:"size"`
	Logged []string `json:"logged"`
	Now    []string `json:"now"`
	Same   bool     `json:"same"`
	Reason string   `json:"reason"` // of the answer now, or why there is none
}

// replayDecisions makes the decisions of a log again, on this node.
func replayDecisions(ctx context.Context, a *app, name string, f cli.Format) error {
	if f == cli.FormatName {
		return cli.Usage("--replay has no names to print: leave out -o name")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	inv, err := a.scan(ctx)
	if err != nil {
		return err
	}
	if len(inv.LPUs) == 0 {
		return cli.NoLPU(a.Root)
	}
	a.Report(inv.Problems)
	results, err := replayLog(inv, name, data)
	if err != nil {
		return err
	}
	if f.IsDocument() {
		err = a.WriteDocument(f, replayDocument{cli.NewHeader("Replay"), results})
	} else {
		rows := cli.Each(results, func(r replayed) []string {
			logged, now := strings.Join(r.Logged, " "), strings.Join(r.Now, " ")
			return []string{strconv.Itoa(r.Line), strconv.Itoa(r.Size), logged, now, cli.YesNo(r.Same), r.Reason}
		})
		err = a.WriteTable([]string{"LINE", "SIZE", "LOGGED", "NOW", "SAME", "WHY"}, rows)
	}
	if err == nil && slices.ContainsFunc(results, func(r replayed) bool { return !r.Same }) {
		err = cli.Found()
	}
	return err
}

// replayLog finds the decisions in a log. Other lines are passed over, whatever they are.
func replayLog(inv *discovery.Inventory, name string, data []byte) ([]replayed, error) {
	results := []replayed{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for line := 1; lines.Scan(); line++ {
		var d loggedDecision
		text := lines.Bytes()
		if i := bytes.IndexByte(text, '{'); i >= 0 { // what collects logs may put something before
			text = text[i:]
		}
		if json.Unmarshal(text, &d) != nil || d.Message != plugin.DecisionMessage {
			continue
		}
		r := replayed{Line: line, Time: d.Time, Size: d.Size, Logged: cli.EmptyNotNull(d.Chosen), Now: []string{}}
		decision, err := d.again(inv)
		if err != nil {
			r.Reason = err.Error()
		} else {
			r.Now, r.Reason, r.Same = decision.LPUs, decision.Explanation.Reason, slices.Equal(decision.LPUs, d.Chosen)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, cli.Fail(cli.ExitFailed, "decisions are logged by lpuctl serve --log-level info --log-format json",
			"%s: there is no decision in it", name)
	}
	return results, lines.Err()
}

// again makes the decision on this node, with LPUs as healthy as they were then. The log
// names LPUs as list does.
func (d *loggedDecision) again(inv *discovery.Inventory) (*allocate.Decision, error) {
	free, unknownFree := inv.Resolve("", d.Available...)
	must, unknownMust := inv.Resolve("", d.MustInclude...)
	unhealthy, unknownUnhealthy := inv.Resolve("", d.Unhealthy...)
	if err := cmp.Or(unknownFree, unknownMust, unknownUnhealthy); err != nil {
		return nil, err
	}
	return allocate.Decide(inv, inv.FabricWithout(unhealthy), allocate.Wish{Size: d.Size, Free: free, Must: must})
}
