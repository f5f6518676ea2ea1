// Package dra says what a node publishes for Kubernetes' dynamic resource allocation:
// every arc of a ring is a device that consumes one counter for each of its LPUs, so that
// whatever the scheduler hands out is connected, and no LPU is handed out twice.
//
// [Slices] is what one inventory gives. [Publisher] decides over time: a device must not
// disappear, or mean other LPUs, while a claim may have it.
package dra
