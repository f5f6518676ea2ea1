package cdi

import "slices"

// Names of the variables from which a container learns its LPUs. [Meanings] says what
// each of them means.
const (
	// DriverVersion is the variable with the version of the driver. A container gets it
	// only if all of its LPUs share one version.
	DriverVersion = "LPU_DRIVER_VERSION"

	deviceIndex    = "LPU_DEVICE_INDEX"
	visibleDevices = "LPU_VISIBLE_DEVICES"
	ringOrder      = "LPU_RING_ORDER"
	connectedLPUs  = "LPU_CONNECTED"
	numberOfLPUs   = "NUM_LPU_DEVICES"
)

// Meaning is what a variable says on both sides. The host and the container count the
// same LPUs in two ways: the host counts all of its LPUs, and XRT in a container counts
// from 0 those whose node is there, both in the order of PCI addresses.
type Meaning struct {
	Variable  string `json:"variable"`
	Host      string `json:"host"`
	Container string `json:"container"`
}

// Meanings are those of all variables that lpuctl sets itself, in the order in which
// people should read them.
func Meanings() []Meaning {
	return []Meaning{
		{deviceIndex, "index of the only LPU", "no index: XRT calls the only LPU 0"},
		{visibleDevices, "indices of the LPUs, in ring order", "no indices: XRT does not read it, and numbers its LPUs from 0"},
		{ringOrder, "no indices", "XRT's indices of the same LPUs, in ring order"},
		{connectedLPUs, "whether each LPU is cabled to the next", "the same"},
		{numberOfLPUs, "number of LPUs given to the container", "XRT's indices are 0 to one less"},
		{DriverVersion, "version of the loaded driver", "version that XRT in the image has to fit"},
	}
}

// meaningsOf are the meanings of those variables that are set.
func meaningsOf(set []Variable) []Meaning {
	return slices.DeleteFunc(Meanings(), func(m Meaning) bool {
		return !slices.ContainsFunc(set, func(v Variable) bool { return v.Name == m.Variable })
	})
}
