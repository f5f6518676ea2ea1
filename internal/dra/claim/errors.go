package claim

import "errors"

// ErrUnknown says that this node has never published a device of this name.
var ErrUnknown = errors.New("this node has no such device")

// ErrRecabled says that a device is of a former cabling: its LPUs are no longer
// neighbours, or no longer there.
var ErrRecabled = errors.New("the device is of a former cabling")

// ErrTaken says that an LPU is another claim's.
var ErrTaken = errors.New("another claim has it")
