// Package runtimes says whether the container runtimes of a machine give CDI devices
// (Container Device Interface) to containers, and whether they read the directory that
// lpuctl writes specs to. [Check] asks a running containerd. For every other runtime it
// reads config files and installed versions. It starts no program and changes no file.
package runtimes
