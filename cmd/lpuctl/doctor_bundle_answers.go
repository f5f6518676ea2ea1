package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/bundle"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// addHolders adds the names of the users who have LPUs: not all are in a file.
func addHolders(names *bundle.Names, inv *discovery.Inventory) {
	if inv == nil {
		return
	}
	for i := range inv.LPUs {
		for _, h := range []*discovery.Holder{inv.LPUs[i].Leased, inv.LPUs[i].Reserved} {
			if h != nil {
				names.AddUsers(h.User)
			}
		}
	}
}

// answersOf are the answers that cannot be had of the files of a bundle. inv may be nil.
func answersOf(ctx context.Context, a *app, d *doctor.Diagnosis, inv *discovery.Inventory, until time.Time) map[string]any {
	answers := map[string]any{
		bundle.Doctor:   doctorDocument{cli.NewHeader("Diagnosis"), d},
		bundle.Runtimes: runtimes.Record(ctx, string(a.Root), runtimes.Options{SpecDir: a.Config.CDI.SpecDir}),
	}
	if inv != nil {
		limited, cancel := context.WithTimeout(ctx, node.UsersLimit)
		defer cancel()
		answers[bundle.Users] = discovery.RecordUsers(limited, string(a.Root), inv)
	}
	if of, err := podsOf(a); err == nil {
		answers[bundle.Pods] = of.Record(ctx)
	}
	if r := recentUsage(ctx, a, until); r != nil {
		answers[bundle.Usage] = r
	}
	return answers
}

// addAnswers adds answers, with paths as below "/".
func addAnswers(a *app, c *bundle.Collector, answers map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(answers)) { // stand-ins have the same numbers then
		text, err := json.Marshal(answers[name])
		if err != nil {
			return err
		}
		if a.Root != "/" {
			text = (&there{dir: string(a.Root)}).rename(text)
		}
		c.Answer(name, text)
	}
	return nil
}

// usageWithin is how long the arbiter has to say what was used.
const usageWithin = 5 * time.Second

// recentUsage is what lpuctl usage says without flags; nil if no arbiter runs, which none is
// started for, or it does not say it.
func recentUsage(ctx context.Context, a *app, until time.Time) (r *usage.Report) {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return nil
	}
	files, err := lease.FilesOf(a.Root, memory.Dir)
	if err != nil {
		return nil
	}
	if runs, err := files.Arbiter(); err != nil || !runs {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, usageWithin)
	defer cancel()
	client, err := lease.DialIn(a.Root)
	if err != nil {
		return nil
	}
	defer func() { _ = client.Close() }()
	until = until.Truncate(time.Second)
	if r, err = client.Usage(ctx, usage.Query{Since: until.Add(-usageTime), Until: until}); err != nil {
		return nil
	}
	return r
}

// usage returns what was recorded of the use. asked: for a time that someone has chosen.
func (r *replay) usage(user string, asked bool) (*usage.Report, error) {
	var report usage.Report
	there, err := r.bundle.Answer(bundle.Usage, &report)
	switch {
	case err != nil:
		return nil, err
	case asked:
		return nil, cli.Usage("a bundle has the use of the 30 days before it was made: leave out --since and --until")
	case !there:
		return nil, cli.Fail(cli.ExitFailed, "make the bundle as root while users have leases",
			"the bundle does not say who has used LPUs: no arbiter ran when it was made")
	}
	all := report.Users
	report.Users = []usage.User{}
	for _, u := range all {
		if user == "" || user == u.Name || user == strconv.Itoa(u.UID) {
			report.Users = append(report.Users, u)
		}
	}
	return &report, nil
}
