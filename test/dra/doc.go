// Package dra holds what internal/dra publishes against the allocator of Kubernetes'
// scheduler. Its tests have the build tag dra, because the allocator takes long to build:
// make test-dra.
package dra
