#!/bin/sh
# Runs a container of podman with LPUs of its own: run.sh NUMBER IMAGE [COMMAND...]
#
# lpuctl takes LPUs that are free, and connected ones if there are such. A lease keeps others from being given them until the container
# has ended (docs/run.md).
set -eu
number=${1:?usage: run.sh NUMBER IMAGE [COMMAND...]}
shift
exec lpuctl run -n "$number" -- podman run --rm '{args}' "$@"
