// Package node follows the LPUs of one node over time, for whatever hands them out to
// pods.
//
// [Node.Update] takes each inventory that is read, keeps the CDI spec on disk in step
// with it and makes a [Snapshot]: which LPUs there are, and which of them are healthy.
// The package knows nothing of the kubelet or of how pods ask for LPUs.
package node
