// Package cli is what the programs of this module share: global flags, the config file,
// how they scan, print, fail and run as daemons.
package cli
