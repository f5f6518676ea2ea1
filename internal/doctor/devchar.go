package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// DevChars returns the check of the links in /dev/char.
func DevChars(root host.Root, scan Scan) Check {
	const about = "the links in /dev/char"
	return Check{DevChar, about, func(ctx context.Context) Result {
		why := needsDevChar(root)
		if why == "" {
			return Result{Absent: "no runc that needs them"}
		}
		inv, err := scan(ctx)
		if err != nil {
			return Unable(about, err)
		}
		var r Result
		there, all := 0, 0
		for i := range inv.LPUs {
			for _, n := range inv.LPUs[i].Nodes {
				if !root.Exists(n.Path) { // which another link says
					continue
				}
				all++
				if f := missingLink(root, &inv.LPUs[i], n, why); f != nil {
					r.Findings = append(r.Findings, *f)
				} else {
					there++
				}
			}
		}
		r.Says = fmt.Sprintf("%d of %d", there, all)
		if all == 0 {
			r.Absent, r.Says = "no device file of an LPU", ""
		}
		return r
	}}
}

// missingLink says that a node has no link; nil: it has one.
func missingLink(root host.Root, l *discovery.LPU, n discovery.Node, why string) *finding.Finding {
	link := fmt.Sprintf("/dev/char/%d:%d", n.Major, n.Minor)
	if root.Exists(link) && root.Same(link, n.Path) {
		return nil
	}
	f := finding.New(finding.DevCharMissing, l.Name,
		fmt.Sprintf("%s is no link to %s: %s, a container loses the device at each systemctl daemon-reload", link, n.Path, why),
		fmt.Sprintf("mkdir -p %s; ln -sfn ../%s %s; then start the containers again", root.Shown("/dev/char"),
			strings.TrimPrefix(n.Path, "/dev/"), root.Shown(link)))
	return &f
}

// needsDevChar says why containers of this machine need the links; "": they do not. From
// 1.1.3 to 1.1.6 runc leaves a rule out of the unit of a container if there is no link, and
// later ones do so with a systemd before 240 (opencontainers/runc#3671, #3845).
func needsDevChar(root host.Root) string {
	there, runc := runtimes.Runc(root)
	if !there || !runtimes.Systemd(root) {
		return ""
	}
	systemd := runtimes.SystemdVersion(root)
	return why(runc, systemd)
}

func why(runc, systemd versions.Release) string {
	switch {
	case !runc.Known():
		return "if runc is 1.1.3 to 1.1.6, which its file does not tell"
	case runc.Within("1.1.3-1.1.7"):
		return "with runc " + runc.Text
	case runc.Within("1.1.7-") && systemd.Known() && systemd.Before("240.0"):
		return fmt.Sprintf("with runc %s and systemd %d", runc.Text, systemd.Number[0])
	}
	return ""
}
