// Package cdi turns an inventory of LPUs into a CDI specification (Container Device
// Interface, SPEC.md of tags.cncf.io/container-device-interface) and keeps the file where
// container runtimes read it.
//
// [Spec] is pure: what it says of a device is what the inventory says. [Held.Write]
// replaces the file so that a reader sees the old one or the new one, never less.
// [Explain] says what a container gets with devices of a spec.
package cdi
