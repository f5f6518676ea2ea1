// Package runtimes says whether the container runtimes of a machine hand out CDI devices (Container Device
// Interface) and read the directory that lpuctl writes to. [Check] asks a running containerd, and reads the
// files and versions of what does not answer. It runs nothing and changes nothing.
package runtimes
