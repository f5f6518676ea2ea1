package discovery

import (
	"fmt"
	"path"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// ha is the driver of a Bertha.
type ha struct{ generic }

// haState is the attribute of the class device that says how the card is (docs/health-notes.md).
const haState = "state"

func (ha) states(nodes []Node) (paths []string) {
	for _, n := range nodes {
		paths = append(paths, path.Join("ha", path.Base(n.Path), haState))
	}
	return paths
}

// read reads what docs/health-notes.md asks of the driver of a Bertha: attributes of the
// class device.
func (ha) read(f *function, lpu *LPU, _ *host.Dir) {
	dir := f.classDevice()
	if dir == nil {
		return
	}
	defer dir.Close()
	lpu.Serial = lpu.attributes().optional(dir.Line("serial"))
	switch state := lpu.attributes().optional(dir.Line(haState)); state {
	case "", "ok":
	case "resetting":
		lpu.reason(finding.Offline, "its driver resets it (state is resetting)", "")
	case "failed":
		lpu.Reading.BadState = true
	default:
		lpu.attributes().warn(dir.Fault(haState, fmt.Errorf("%.20q is none of ok, resetting and failed", state)))
	}
}

func (ha) sense(f *function, _ *LPU, sensors *health.Sensors, a attributes) {
	if dir := f.classDevice(); dir != nil {
		sensors.ECC = a.count(dir, "errors_uncorrectable")
		dir.Close()
	}
}
