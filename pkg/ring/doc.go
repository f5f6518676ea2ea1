// Package ring reads how LPUs are cabled to each other, and chooses LPUs for a workload
// by it. It works on bytes and numbers only: it opens no file and does not look at the
// machine.
//
// [Parse] reads a ring table and reports everything that is wrong with it. [Bind] finds
// the card of this node for each id in the table and returns the [Cabling]. A [Fabric] is
// made of that, and [Fabric.Choose] chooses the LPUs.
package ring
