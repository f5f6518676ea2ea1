#!/usr/bin/env bash
# The main job on a simulated Orion server: find the LPUs, write the spec, see what a runtime would resolve.
# Needs no hardware and no root. Usage: docs/demo.sh path/to/lpuctl
set -euo pipefail
lpuctl=$1
node=$(mktemp -d)
trap 'rm -rf "$node"' EXIT

show() {
	printf '\n$ lpuctl'
	printf ' %s' "$@"
	printf '\n'
	code=0
	"$lpuctl" "$@" >"$node/out" || code=$?
	awk 'NR <= 40; END { if (NR > 40) printf "... %d more lines\n", NR - 40 }' "$node/out"
	[ "$code" = 0 ] || printf '(exit code %d)\n' "$code"
}

show simulate "$node/orion"
show --root "$node/orion" list
show --root "$node/orion" topology
show --root "$node/orion" allocate -n 4 --available 0,1,3,4,5,6,7
show --root "$node/orion" cdi refresh
show --root "$node/orion" cdi list
show --root "$node/orion" cdi generate --device lpu0

printf '\nThe same server with a card in its factory image and one without its driver:\n'
show simulate "$node/sick" --fault recovery@2 --fault unbound@5
show --root "$node/sick" list
show --root "$node/sick" describe lpu5
show --root "$node/sick" --quiet cdi refresh
