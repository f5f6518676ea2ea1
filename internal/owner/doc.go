// Package owner decides which of two programs hands out the LPUs of a node to pods: the
// device plugin (lpuctl serve) or the DRA driver (lpuctl-dra). Both can be installed at
// once, and pods of one may run while the other takes over, so
//
//   - one file says who it is. It is never deduced from what the kubelet offers: a
//     plugin that restarts offers nothing either;
//   - who is not the owner stops offering;
//   - who is offers an LPU only when it is known that no pod on the other side has it;
//   - both check again, under one lock, at the moment in which they hand out LPUs.
package owner
