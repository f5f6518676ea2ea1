module github.com/hyperaccel/lpuctl/test/e2e

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/hanwen/go-fuse/v2 v2.9.0
	golang.org/x/sys v0.49.0
)
