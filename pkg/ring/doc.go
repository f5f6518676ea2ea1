// Package ring knows how LPUs are cabled. It is pure: bytes and numbers in, no files, no machine. [Parse] reads
// a ring table and says all that is wrong with it, [Bind] puts it onto cards, and a [Fabric] of them chooses which
// ones a workload should take: [Fabric.Choose].
package ring
