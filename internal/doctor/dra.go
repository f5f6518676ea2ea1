package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Driving returns the check of the DRA driver: its sockets, and the claims that are
// prepared.
func Driving(p Pods) Check {
	const about = "the DRA driver"
	return Check{DRA, about, func(context.Context) Result {
		node, err := p.Node()
		if err != nil {
			return Unable(about, err)
		}
		_, now, err := p.Stand()
		if err != nil {
			return Unable(about, err)
		}
		var r Result
		claims, problems, err := node.Claims().Inspect()
		if err != nil {
			r.Unseen = append(r.Unseen, Unseen{"which claims are prepared", err.Error(), cmp.Or(right(err), "run it as root")})
		}
		r.Findings = append(r.Findings, problems...)
		unknown := now.Unknown[owner.DRA]
		if unknown != nil {
			r.Unseen = append(r.Unseen, Unseen{"whether the DRA driver runs", unknown.Error(), cmp.Or(right(unknown), "run it as root")})
		}
		runs := now.Running[owner.DRA]
		for _, c := range claims {
			r.lookForFile(c.String(), cdi.ClaimFile(node.SpecDir, c.UID), runs)
		}
		switch {
		case runs:
			r.Says = "the DRA driver runs"
			r.lookForSockets(p.kubeletDir(node))
		case unknown != nil:
		case len(claims) == 0 && len(r.Findings) == 0:
			r.Absent = "the DRA driver does not run"
		default:
			r.Says = "the DRA driver does not run"
		}
		if len(claims) > 0 {
			r.Says = strings.TrimPrefix(fmt.Sprintf("%s, prepared claims: %d", r.Says, len(claims)), ", ")
		}
		return r
	}}
}

// lookForFile finds out whether the CDI file of a claim is there. The driver makes it again
// within seconds.
func (r *Result) lookForFile(of, file string, runs bool) {
	_, err := os.Lstat(file)
	remedy := "start the DRA driver, which makes it again: systemctl start lpuctl-dra, or see why its pod does not run"
	switch {
	case err == nil:
		return
	case !host.IsAbsent(err):
		r.Unseen = append(r.Unseen, Unseen{"whether the claim " + of + " has its CDI file", err.Error(), cmp.Or(right(err), "look at "+file)})
		return
	case runs:
		remedy = "wait for a few seconds: the DRA driver makes it again; if it stays so, see its log"
	}
	r.Findings.Add(finding.ClaimFile, of, "it is not there, and a container of the claim may not start again", remedy).At(file, 0)
}

// kubeletDir is the kubelet's directory, on this machine: the one with the socket that
// says which pods have LPUs, else the one with those of device plugins.
func (p *Pods) kubeletDir(node *pods.Node) string {
	if socket, err := pods.Socket(p.Root, node.PodResources); err == nil && socket != "" {
		return filepath.Dir(filepath.Dir(socket))
	}
	return filepath.Dir(node.PluginDir)
}

// lookForSockets finds out whether the kubelet can find the driver and call it.
func (r *Result) lookForSockets(kubelet string) {
	for _, s := range []struct{ what, pattern string }{
		{"register", filepath.Join(claim.RegistryDir(kubelet), claim.DriverName+"*-reg.sock")},
		{"call it", filepath.Join(claim.DataDir(kubelet), "dra*.sock")},
	} {
		paths, err := host.Root("/").Glob(s.pattern)
		listens := false
		for _, socket := range paths {
			answers, unseen := host.Listens(socket)
			listens, err = listens || answers, cmp.Or(err, unseen)
		}
		switch {
		case listens:
		case err != nil:
			r.Unseen = append(r.Unseen, Unseen{"whether the kubelet can " + s.what, err.Error(), cmp.Or(right(err), "run it as root")})
		case len(paths) == 0:
			r.Findings.Add(finding.DRAUnregistered, "lpuctl-dra", "the DRA driver runs, and there is no socket "+s.pattern, "")
		default:
			r.Findings.Add(finding.DRAUnregistered, "lpuctl-dra", "no program listens at "+strings.Join(paths, ", "), "")
		}
	}
}
