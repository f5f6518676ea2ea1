package doctor

import (
	"context"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
)

// SelfCheck returns the check of what the self-check of the kubelet's runtime has left.
func SelfCheck(root host.Root) Check {
	const about = "the result of the self-check"
	return Check{SelfTest, about, func(context.Context) Result {
		there, _ := runtimes.Kubelet(root)
		if !there {
			return Result{Absent: "no kubelet on this node"}
		}
		if !root.Exists(runtimes.ResultPath) && !runtimes.UnitOf(root, checkTimer).Enabled {
			return Result{Absent: "no self-check is set up (" + checkTimer + ")"}
		}
		file, err := root.Resolve(runtimes.ResultPath)
		if err != nil {
			return Unable(about, err)
		}
		answer := runtimes.ReadAnswer(file, host.Now())
		r := Result{Says: "the kubelet's runtime has CDI " + string(answer.CDI)}
		if answer.Reason != nil {
			f := *answer.Reason
			f.Subject = "self-check"
			r.Findings = append(r.Findings, f)
		}
		return r
	}}
}
