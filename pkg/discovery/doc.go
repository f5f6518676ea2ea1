// Package discovery finds the LPUs of a machine by reading sysfs, and says of each whether a container
// could use it and, if not, why and what to do.
//
// [Scan] reads a machine under a root directory and returns an [Inventory]. It only ever reads, and only
// regular files of bounded size; it never opens a device. Which PCI functions are LPUs is told by a table
// of models ([BuiltinModels], extended by the operator).
package discovery
