package discovery

import (
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestACardThatHangsApart is not read again, and the others are. What is known of it without its driver is reported. test/e2e does the same
// with a read that sleeps.
func TestACardThatHangsApart(t *testing.T) {
	root := plant.Capture(t, u55c)
	apart := &Apart{}
	apart.hanging.Begin(StageOf(pci.Address{Bus: 0x43, Function: 1}, DriverStage))
	for range 2 {
		inv, err := Scan(t.Context(), root, Options{Models: captureModels(), Apart: apart, CardDeadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if l := inv.LPUs[0]; !l.Reasons.Has(finding.ReadStalled) || l.Health != HealthUnknown || l.Driver == "" {
			t.Errorf("the card that hangs: %s %q %v", l.Health, l.Driver, l.Reasons)
		}
		for _, l := range inv.LPUs[1:] {
			if l.Reasons.Has(finding.ReadStalled) || l.Reading.Sensors == nil {
				t.Errorf("%s: %v", l.Name, l.Reasons)
			}
		}
	}
}
