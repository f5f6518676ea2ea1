package claim

import "path/filepath"

// DriverName is the name of the DRA driver, by which the kubelet knows it.
const DriverName = "lpu.hyperaccel.ai"

// RegistryDir is where the kubelet, whose directory is given, looks for drivers.
func RegistryDir(kubelet string) string { return filepath.Join(kubelet, "plugins_registry") }

// DataDir is where the driver has the socket that the kubelet calls.
func DataDir(kubelet string) string { return filepath.Join(kubelet, "plugins", DriverName) }
