package health_test

import (
	"fmt"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// A judge takes one reading after the other. What was unhealthy counts as healthy again only when
// it has stayed so for a moment.
func ExampleJudge() {
	judge := health.NewJudge(health.DefaultPolicy(), nil)
	see := func(at time.Duration, reasons finding.List) {
		verdict := judge.See("0000:43:00.1", "lpu0", health.Reading{Device: 1, Driver: "xocl", Reasons: reasons}, at)
		fmt.Println(at, verdict.State)
	}
	see(60*time.Second, nil)
	see(61*time.Second, finding.List{finding.New(finding.Gone, "lpu0", "it left the bus", "")})
	see(62*time.Second, nil)
	see(64*time.Second, nil)
	see(66*time.Second, nil)
	// Output:
	// 1m0s healthy
	// 1m1s unhealthy
	// 1m2s unhealthy
	// 1m4s unhealthy
	// 1m6s healthy
}
