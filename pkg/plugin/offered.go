package plugin

import "github.com/hyperaccel/lpuctl/pkg/cdi"

// Offered is how many LPUs the kubelet would hand out, whether or not a pod has them: the
// healthy ones of a plugin that is registered.
func (s *Said) Offered() (n int) {
	for id := range s.allocatable {
		if _, err := cdi.ParseAddressName(id); err == nil {
			n++
		}
	}
	return n
}
