package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/certify"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// addCertify adds the flags of doctor --certify.
func addCertify(_ *app, cmd *cobra.Command) {
	cmd.Flags().Bool("certify", false, "check each numbered assumption of docs/hardware.md on this node instead: held, refuted "+
		"(then the exit code is 3) or undecided, with what it takes; it writes nothing to a card and asks it no more than list does")
	cmd.Flags().String("fixture", "", "with --certify: write what the scan has read of the LPUs in sysfs to a new `FILE` (tar.gz), "+
		"to be sent; serial numbers are replaced, and what is in it is said before")
}

// certify does what --certify asks for; done: that was asked for.
func (a *app) certify(cmd *cobra.Command, format cli.Format, links []string) (done bool, err error) {
	wanted, _ := cmd.Flags().GetBool("certify")
	fixture, _ := cmd.Flags().GetString("fixture")
	switch {
	case fixture != "" && !wanted:
		return true, cli.Usage("--fixture FILE goes with --certify")
	case wanted && len(links) > 0:
		return true, cli.Usage("--certify takes no LINK")
	case wanted:
		return true, a.certifyNode(cmd.Context(), format, fixture)
	}
	return false, nil
}

// certifyLimit is how long files may take that are no attributes of cards, such as those of
// HyperDex.
const certifyLimit = time.Minute

// certificate is what doctor --certify prints for programs.
type certificate struct {
	cli.Header
	LPUs        int              `json:"lpus"`
	Assumptions []certify.Result `json:"assumptions"`
}

func (a *app) certifyNode(ctx context.Context, format cli.Format, fixture string) error {
	record, end := certify.Watch(a.Root)
	inv, err := a.scanWith(ctx, discovery.Options{Management: true})
	end()
	if err != nil {
		return err
	}
	discovery.FindUsers(ctx, string(a.Root), inv)
	// A file system that does not answer holds nothing but a goroutine.
	results, err := stall.Within(ctx, &stall.Reads{}, "assumptions", certifyLimit, func() ([]certify.Result, error) {
		facts, err := certify.NewFacts(a.Root, inv, record)
		if err != nil {
			return nil, err
		}
		defer facts.Close()
		return certify.Certify(facts), nil
	})
	if err != nil {
		return err
	}
	c := certificate{cli.NewHeader("Certificate"), len(inv.LPUs), results}
	if err := a.showCertificate(format, c); err != nil {
		return err
	}
	if fixture != "" {
		if err := a.writeFixture(fixture, inv, record); err != nil {
			return err
		}
	}
	if certify.Count(c.Assumptions, certify.Refuted) > 0 {
		return cli.Found()
	}
	return nil
}

func (a *app) showCertificate(format cli.Format, c certificate) error {
	if format.IsDocument() {
		return a.WriteDocument(format, c)
	}
	rows := cli.Each(c.Assumptions, func(r certify.Result) []string {
		return []string{r.Number, string(r.Verdict), r.Claim, r.Says()}
	})
	if err := a.WriteTable([]string{"NUMBER", "VERDICT", "CLAIM", "EVIDENCE"}, rows); err != nil {
		return err
	}
	a.Say("%d held, %d refuted, %d undecided on this node", certify.Count(c.Assumptions, certify.Held),
		certify.Count(c.Assumptions, certify.Refuted), certify.Count(c.Assumptions, certify.Undecided))
	return nil
}

// writeFixture says what is in the archive, and writes it.
func (a *app) writeFixture(file string, inv *discovery.Inventory, record *certify.Record) error {
	if len(inv.LPUs) == 0 {
		return cli.NoLPU(a.Root)
	}
	x, err := certify.NewFixture(a.Root, inv, record)
	if err != nil {
		return err
	}
	kinds, files := x.Contents()
	fmt.Fprintf(a.Err, "%s gets %d attributes of %d LPUs, their cards and the ports above them, and the links between them:\n",
		shell.Quoted(file), files, len(inv.LPUs))
	for _, kind := range kinds {
		fmt.Fprintf(a.Err, "  %s\n", shell.Printable(kind))
	}
	err = x.Write(file)
	if errors.Is(err, fs.ErrExist) {
		return cli.WithRemedy(err, "name a file that is not there yet")
	}
	if err != nil {
		return fmt.Errorf("the archive: %w", err)
	}
	return nil
}
