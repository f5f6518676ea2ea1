package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Pods is where is looked for who hands out LPUs to pods.
type Pods struct {
	Root  host.Root
	Node  func() (*pods.Node, error)
	Stand func() (owner.File, owner.Standing, error) // what lpuctl owner show says
	Scan  Scan
}

// Registration returns the check of the kubelet, and whether the device plugin is
// registered with it.
func Registration(p Pods) Check {
	const about = "the kubelet"
	return Check{Kubelet, about, func(ctx context.Context) Result {
		node, err := p.Node()
		if err != nil {
			return Unable(about, err)
		}
		_, now, err := p.Stand()
		if err != nil {
			return Unable(about, err)
		}
		there, runs := runtimes.Kubelet(p.Root)
		said, untold := node.Ask(ctx)
		plugin := now.Running[owner.Plugin]
		if errors.Is(untold, pods.ErrNoKubelet) && !runs && !plugin {
			return noKubelet(p.Root, there)
		}
		r := Result{Says: "the kubelet runs"}
		if err := now.Unknown[owner.Plugin]; err != nil {
			r.Unseen = append(r.Unseen, Unseen{"whether the device plugin runs", err.Error(), cmp.Or(right(err), "run it as root")})
		}
		if untold != nil {
			r.untold(untold, runs, plugin)
			return r
		}
		if plugin && now.Record.Owner != owner.DRA { // else it is to offer none
			p.compare(ctx, &r, node, said.Offered())
		}
		return r
	}}
}

// noKubelet is the result where no kubelet runs and no device plugin does.
func noKubelet(root host.Root, there bool) (r Result) {
	switch {
	case runtimes.UnitOf(root, "kubelet.service").Enabled:
		r.Findings.Add(finding.KubeletAway, "kubelet", "kubelet.service is enabled, and the kubelet does not run", "")
	case there:
		r.Absent = "the kubelet does not run"
	default:
		r.Absent = "no kubelet on this node"
	}
	return r
}

// untold says what is known where the kubelet does not say what it has.
func (r *Result) untold(why error, runs, plugin bool) {
	const what = "which LPUs the kubelet lists"
	switch {
	case isDenied(why):
		r.Unseen = append(r.Unseen, Unseen{what, why.Error(), "run it as root"})
	case runs && errors.Is(why, pods.ErrNoKubelet):
		r.Unseen = append(r.Unseen, Unseen{what, "the kubelet runs, and its socket is not at a usual place",
			"name the socket as serve.podResources in /etc/lpuctl/config.yaml"})
	default:
		r.Says = ""
		message := "the kubelet does not answer: " + why.Error()
		if plugin {
			message = "the device plugin runs, and " + message
		}
		r.Findings.Add(finding.KubeletAway, "kubelet", message, finding.RemedyOf(why))
	}
}

// isDenied reports whether an error of the kubelet's socket says that this user may not
// ask. gRPC keeps the text of the system's error only.
func isDenied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), fs.ErrPermission.Error())
}

// compare says whether the kubelet lists the LPUs that the plugin can offer.
func (p *Pods) compare(ctx context.Context, r *Result, node *pods.Node, listed int) {
	inv, err := p.Scan(ctx)
	if err != nil {
		r.Unseen = append(r.Unseen, Unseen{"how many LPUs the kubelet should list", err.Error(), right(err)})
		return
	}
	free, _ := count(inv, func(l *discovery.LPU) bool {
		return l.Fit() && l.Cordoned == nil && l.Leased == nil && l.Reserved == nil && l.KeptBack == ""
	})
	r.Says = fmt.Sprintf("the kubelet lists %d of %d LPUs", listed, free)
	switch {
	case listed == 0 && free > 0:
		r.Findings.Add(finding.PluginUnregistered, "kubelet", "the device plugin runs, and the kubelet lists no LPU"+since(node.PluginDir), "")
	case listed < free:
		r.Findings.Add(finding.PluginUnregistered, "kubelet", fmt.Sprintf("%d LPUs can be given to pods, and the kubelet lists %d", free, listed),
			"lpuctl serve says in its log and in its metrics which LPUs it withholds, and why").Severity = finding.Warning
	}
}

// since says that the kubelet was started after the plugin registered: each registration
// has a socket of its own.
func since(dir string) string {
	kubelet, err := os.Lstat(filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		return ": there is no kubelet.sock in " + dir
	}
	sockets, _ := filepath.Glob(filepath.Join(dir, owner.SocketPrefix+"*.sock"))
	var latest time.Time
	for _, socket := range sockets {
		if info, err := os.Lstat(socket); err == nil && info.ModTime().After(latest) {
			latest = info.ModTime()
		}
	}
	switch {
	case len(sockets) == 0:
		return ": the plugin has no socket in " + dir
	case latest.Before(kubelet.ModTime()):
		return ": the plugin has not registered since the kubelet was started"
	}
	return ""
}
