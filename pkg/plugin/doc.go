// Package plugin is a Kubernetes device plugin for LPUs (kubelet API v1beta1): it registers with the kubelet again and
// again, lists the LPUs with their health, prefers connected ones and hands them out.
//
// [Plugin] answers the kubelet's calls out of memory: what is in the machine reaches it by [Plugin.Update], which
// no call waits for. [Server] keeps it registered.
package plugin
