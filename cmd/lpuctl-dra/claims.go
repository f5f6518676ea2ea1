package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// claimList is the document that claims prints.
type claimList struct {
	cli.Header
	Claims   []preparedClaim `json:"claims"`
	Problems finding.List    `json:"problems"` // records that cannot be used
}

// preparedClaim is a claim that was made ready for a container on this node.
type preparedClaim struct {
	Namespace string                `json:"namespace"`
	Name      string                `json:"name"`
	UID       string                `json:"uid"`
	Since     time.Time             `json:"since,omitzero"` // absent: only the kubelet knows the claim
	Requests  []claim.RecordRequest `json:"requests"`
}

func newClaimsCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "Show which claims have which LPUs of this node",
		Long: `claims shows the claims that serve has prepared for containers of this node, with their devices and LPUs in ring order. It reads
what serve has written down in /var/lib/lpuctl and in the CDI files of the claims, and asks the kubelet of this node; only root can. It asks
no cluster. A claim that the scheduler has placed here is not among them before the kubelet starts its pod.

It is exit code 3 if a record cannot be used. The file is named, with what to do.`,
		Example: `  sudo lpuctl-dra claims
  kubectl -n lpuctl-system exec ds/lpuctl -- lpuctl-dra --root /host claims -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			records, problems, err := preparedClaims(cmd.Context(), a)
			if err != nil {
				return err
			}
			if f.IsDocument() {
				err = a.WriteDocument(f, claimDocument(records, problems))
			} else {
				err = writeClaims(&a.Terminal, records)
			}
			if err != nil {
				return err
			}
			a.Report(problems)
			return cli.FoundIn(problems)
		},
	}
	a.FormatFlag(cmd, &f)
	return cmd
}

// preparedClaims are those of this boot: from the checkpoint, the CDI files and, where
// there is one, the kubelet.
func preparedClaims(ctx context.Context, a *app) ([]*claim.Record, finding.List, error) {
	if err := a.LoadConfig(); err != nil {
		return nil, nil, err
	}
	dir, err := a.Root.Resolve(node.StateDir)
	if err != nil {
		return nil, nil, err
	}
	of, err := a.Pods(node.Memory{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	_, s, untold := of.All(ctx)
	if untold != nil {
		a.Say("claims whose files are lost are not shown: %v", untold)
	}
	records, problems, err := s.Inspect()
	if err != nil {
		return nil, nil, fmt.Errorf("prepared claims: %w", err)
	}
	return records, problems, nil
}

func claimDocument(records []*claim.Record, problems finding.List) claimList {
	list := claimList{Header: cli.NewHeader("ClaimList"), Claims: []preparedClaim{}, Problems: cli.EmptyNotNull(problems)}
	for _, r := range records {
		list.Claims = append(list.Claims, preparedClaim{r.Namespace, r.Name, r.UID, r.Since, r.Requests})
	}
	return list
}

func writeClaims(t *cli.Terminal, records []*claim.Record) error {
	var rows [][]string
	for _, r := range records {
		since := "-"
		if !r.Since.IsZero() {
			since = r.Since.UTC().Format(time.RFC3339)
		}
		for _, q := range r.Requests {
			for _, d := range q.Devices {
				rows = append(rows, []string{r.Namespace + "/" + r.Name, q.Name, d.Name, joined(d.Members), since})
			}
		}
	}
	return t.WriteTable([]string{"CLAIM", "REQUEST", "DEVICE", "ADDRESSES", "SINCE"}, rows)
}

// joined are addresses in a column.
func joined(addresses []pci.Address) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}
