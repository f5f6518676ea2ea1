#!/bin/sh
# The same on a node without an arbiter of leases: run-without-lease.sh NUMBER IMAGE [COMMAND...]
#
# Two that start at the same moment may get the same LPUs. Where too few are free, no container is started.
set -eu
number=${1:?usage: run-without-lease.sh NUMBER IMAGE [COMMAND...]}
shift
device=$(lpuctl allocate -n "$number" -o name)
exec podman run --rm --device "$device" "$@"
