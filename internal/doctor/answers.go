package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// right returns what it takes to see what an error hid.
func right(err error) string {
	if remedy := finding.RemedyOf(err); remedy != "" {
		return remedy
	}
	if errors.Is(err, fs.ErrPermission) {
		return "run it as root"
	}
	return ""
}

// Specs returns the check of all spec files that runtimes read. validate is what lpuctl cdi
// validate says.
func Specs(about string, validate func(context.Context) (finding.List, error)) Check {
	return Check{Spec, "the CDI specs", func(ctx context.Context) Result {
		findings, err := validate(ctx)
		if err != nil {
			return Unable("the CDI specs", err)
		}
		return Result{Says: about, Findings: findings}
	}}
}

// Runtimes returns the check of the container runtimes. check is what lpuctl runtime check
// says.
func Runtimes(check func(context.Context) []runtimes.Runtime) Check {
	return Check{Runtime, "whether container runtimes have CDI enabled", func(ctx context.Context) Result {
		var r Result
		var said []string
		for _, found := range check(ctx) {
			if !found.Unused {
				r.addRuntime(&found)
				said = append(said, strings.TrimSpace(found.Name+" "+found.Version))
			}
		}
		if len(said) == 0 {
			r.Absent = "no container runtime is installed"
		}
		r.Says = strings.Join(said, ", ")
		return r
	}}
}

// addRuntime adds what is known of a runtime. What this user may not ask is not seen, which
// is no fault of the runtime.
func (r *Result) addRuntime(of *runtimes.Runtime) {
	for _, f := range of.Findings {
		switch f.ID {
		case finding.CDISource:
		case finding.SocketDenied, finding.ConfigUnreadable:
			r.Unseen = append(r.Unseen, Unseen{"what " + of.Name + " does", f.Message, f.Remedy})
		default:
			r.Findings = append(r.Findings, f)
		}
	}
}

// Ownership returns the check of who hands out the LPUs to pods. stand is what lpuctl owner
// show says.
func Ownership(stand func() (owner.File, owner.Standing, error)) Check {
	return Check{Owner, "which program hands out the LPUs to pods", func(context.Context) Result {
		file, now, err := stand()
		if err != nil {
			return Unable("which program hands out the LPUs to pods", err)
		}
		var r Result
		if now.Err != nil {
			r.Findings.Add(finding.OwnerUnknown, file.Path(), strings.TrimPrefix(now.Err.Error(), file.Path()+": "), "")
		}
		for who, err := range now.Unknown {
			r.Unseen = append(r.Unseen, Unseen{"whether " + who.Program() + " runs", err.Error(), cmp.Or(right(err), "run it as root")})
		}
		switch program, _ := now.Program(); {
		case program != "":
			r.Says = fmt.Sprintf("%s hands out LPUs to pods", program.Program())
		default:
			r.Absent = "no program hands out LPUs to pods"
		}
		return r
	}}
}
