package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/dra/claim"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// claimList is the document that claims prints.
type claimList struct {
	cli.Header
	Claims []preparedClaim `json:"claims"`
}

// preparedClaim is a claim that was made ready for a container on this node.
type preparedClaim struct {
	Namespace string                `json:"namespace"`
	Name      string                `json:"name"`
	UID       string                `json:"uid"`
	Since     time.Time             `json:"since"`
	Requests  []claim.RecordRequest `json:"requests"`
}

func newClaimsCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "Show which claims have which LPUs of this node",
		Long: `claims shows the claims that serve has prepared for containers of this node, with their devices and LPUs in ring order. It reads
what serve has written down in /var/lib/lpuctl, which only root can, and asks no cluster. A claim that the scheduler has placed here is
not among them before the kubelet starts its pod.`,
		Example: `  sudo lpuctl-dra claims
  kubectl -n lpuctl-system exec ds/lpuctl -- lpuctl-dra --root /host claims -o json`,
		Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			records, err := a.preparedClaims()
			if err != nil {
				return err
			}
			if f.IsDocument() {
				return cli.WriteDocument(a.Out, f, claimDocument(records))
			}
			return a.writeClaims(records)
		},
	}
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

// preparedClaims are those of this boot, from the checkpoint.
func (a *app) preparedClaims() ([]claim.Record, error) {
	spec, err := a.LocateSpec()
	if err != nil {
		return nil, err
	}
	dir, err := a.Root.Resolve(node.StateDir)
	if err != nil {
		return nil, err
	}
	records, err := (&claim.Store{Dir: dir, SpecDir: filepath.Dir(spec.Path), BootID: host.Now().Boot}).Claims()
	if err != nil {
		return nil, fmt.Errorf("prepared claims: %w", err)
	}
	return records, nil
}

func claimDocument(records []claim.Record) claimList {
	list := claimList{Header: cli.NewHeader("ClaimList"), Claims: []preparedClaim{}}
	for i := range records {
		r := &records[i]
		list.Claims = append(list.Claims, preparedClaim{r.Namespace, r.Name, r.UID, r.Since, r.Requests})
	}
	return list
}

func (a *app) writeClaims(records []claim.Record) error {
	var rows [][]string
	for i := range records {
		r := &records[i]
		for _, q := range r.Requests {
			for _, d := range q.Devices {
				var addresses []string
				for _, m := range d.Members {
					addresses = append(addresses, m.String())
				}
				rows = append(rows, []string{
					r.Namespace + "/" + r.Name, q.Name, d.Name, strings.Join(addresses, ","), r.Since.UTC().Format(time.RFC3339),
				})
			}
		}
	}
	return a.WriteTable([]string{"CLAIM", "REQUEST", "DEVICE", "ADDRESSES", "SINCE"}, rows)
}
