package kubelet

import (
	"fmt"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
)

// TestMetricsOfPods: a pod whose LPUs are not connected shows by name, and goes when it goes; so does what is left for others.
func TestMetricsOfPods(t *testing.T) {
	b := newBed(t)
	b.serve("--pod-resources")
	holder := b.fill()
	b.remove(holder[0], holder[2], holder[4], holder[6])
	want := func(what string, metrics map[string]int) {
		t.Helper()
		await.Until(t, what, func() error {
			for name, value := range metrics {
				if got := b.metric("http://127.0.0.1:9477/metrics", name); got != value {
					return fmt.Errorf("%s is %d, not %d", name, got, value)
				}
			}
			return nil
		})
	}
	const unconnected = `lpuctl_container_unconnected_lpus{namespace="default",pod="four-node",container="main"}`
	left := func(free, longest, pairs, ofPod int) map[string]int {
		return map[string]int{
			"lpuctl_free_lpus": free, "lpuctl_longest_free_arc_lpus": longest,
			`lpuctl_placeable{size="1"}`: free, `lpuctl_placeable{size="2"}`: pairs, unconnected: ofPod,
		}
	}
	want("four are free, and no two of them are connected", left(4, 1, 0, 0))
	b.check(t, b.run("four", 4), 4, false)
	want("a pod has these four", left(0, 0, 0, 4))
	b.remove("four", holder[1], holder[3])
	want("it has gone, and a run of five is free", left(6, 5, 2, 0))
}
