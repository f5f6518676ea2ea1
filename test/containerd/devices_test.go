package containerd

import "fmt"

// gets is what a container gets that asks for a device.
var gets = map[string]string{
	"lpu0": "env LPU_DEVICE_INDEX=0\nenv LPU_DRIVER_VERSION=1.0.0\nenv LPU_VISIBLE_DEVICES=0\n" + nodes(0) + "lib 1.0.0\n",
	"lpu0-1": "env LPU_CONNECTED=true\nenv LPU_DRIVER_VERSION=1.0.0\nenv LPU_RING_ORDER=0,1\nenv LPU_VISIBLE_DEVICES=0,1\nenv NUM_LPU_DEVICES=2\n" +
		nodes(0, 1) + "lib 1.0.0\n",
}

// nodes is what inspect says of the nodes of some LPUs.
func nodes(indices ...int) (text string) {
	for _, i := range indices {
		text += fmt.Sprintf("node /dev/lpu%d a:e5\nopens /dev/lpu%[1]d\n", i)
	}
	return text
}
