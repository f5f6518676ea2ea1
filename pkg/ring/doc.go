// Package ring knows how LPUs are cabled and which of them to choose. It is pure: bytes and numbers in, no
// files, no machine. [Parse] reads a ring table, [Bind] puts it onto cards, and a [Fabric] chooses LPUs
// that are connected and leaves the rest as connected as can be.
package ring
