// Package discovery finds the LPUs of a machine by reading sysfs. For each LPU it reports
// whether a container can use it and, if not, why and what to do.
//
// [Scan] reads a machine under a root directory and returns an [Inventory]. It only ever
// reads, and only regular files of bounded size; it never opens a device. A table of
// models says which PCI functions are LPUs ([BuiltinModels]; the operator can add rows).
package discovery
