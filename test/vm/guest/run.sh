#!/bin/bash
# Runs in the guest during its boot, as a service, and tells the host of each expectation "pass WHAT" or "fail WHAT".
# shellcheck disable=SC2317 # functions are called by their names
set -u
cd /
export LC_ALL=C
spec=/run/cdi/hyperaccel.ai-lpu.json
engines="containerd podman-restart podman-auto-update"
container=/srv/container
driver=/sys/bus/pci/drivers/uio_pci_generic
first=0000:43:00.1 # lpu0
second=0000:44:00.1

host=/dev/virtio-ports/host
until [ -e $host ]; do sleep 0.1; done
exec 3<>$host
say() { echo "$*" >&3; }
failures=
end() {
	[ -z "$failures" ] || journalctl -b --no-pager >/dev/ttyS0 # which the host keeps
	say end
	# Only what is kept needs an orderly end.
	if [ "$boot" = install ]; then systemctl poweroff; else systemctl poweroff --force --force; fi
}
boot=$(sed 's/.*vm=\([a-z]*\).*/\1/' /proc/cmdline)
trap end EXIT

expect() { # WHAT COMMAND...
	local what=$1 said
	shift
	if said=$("$@" 2>&1); then
		say "pass $what"
	else
		say "fail $what: $*: ${said//$'\n'/$'\n' }"
		failures=1
	fi
}
within() { # SECONDS COMMAND...
	local end=$((SECONDS + $1)) said=
	shift
	until said=$("$@" 2>&1); do
		[ "$SECONDS" -lt "$end" ] || { echo "not in time: $said"; return 1; }
		sleep 0.1
	done
}
not() { ! "$@"; }
is() { # VALUE COMMAND...
	local value
	value=$("${@:2}")
	[ "$value" = "$1" ] || { echo "$value, not $1"; return 1; }
}
ask() { # asks the host to do something to the hardware
	local answer
	echo "ask $*" >&3
	read -r answer <&3
	[ "$answer" = ok ] || { echo "$answer"; return 1; }
}
on_bus() { grep -l 0x505d /sys/bus/pci/devices/*/device | wc -l; }
in_spec() { grep -cE '"name": "lpu[0-9]+"' "${1:-$spec}"; }
state() { systemctl show -P "$2" "$1"; }
failed() { systemctl --failed --no-legend --plain; }
drivers() { find $driver/ -name '0000:*' | wc -l; }
# How long the last refresh took, with the wait for udev.
lasted() {
	local from to
	from=$(state lpuctl-cdi-refresh.service InactiveExitTimestampMonotonic)
	to=$(state lpuctl-cdi-refresh.service InactiveEnterTimestampMonotonic)
	echo $(((to - from) / 1000))
}
exit_code() { state lpuctl-cdi-refresh.service ExecMainStatus; }
run_with() { podman run --rm --network none --device "hyperaccel.ai/lpu=$1" --rootfs $container true; }

# What holds after every boot.
booted() { # LPUS-IN-SPEC
	local unit
	expect "no unit failed" is "" failed
	expect "the hierarchy is cgroup v2" is cgroup2fs stat -f -c %T /sys/fs/cgroup
	expect "the refresh succeeded" is success state lpuctl-cdi-refresh.service Result
	say "note $(journalctl -b -u lpuctl-cdi-refresh.service | grep -c Finished) refresh(es) during the boot, the last one took $(lasted) ms"
	expect "changes are watched for" is active state lpuctl-cdi-refresh.path ActiveState
	expect "containerd runs" is active state containerd.service ActiveState
	[ "$1" != 0 ] || return
	expect "the spec has $1 LPUs" within 60 is "$1" in_spec
	for unit in $engines; do
		expect "$unit is ordered after the refresh" grep -qw lpuctl-cdi-refresh.service <(state "$unit.service" After)
		expect "$unit found a spec of $1 LPUs when it started" is "$1" in_spec "/run/seen-by-$unit"
	done
	expect "a unit enabled at boot started a container" is success state lpu-job.service Result
	expect "which has its LPU and no other" diff <(has lpu0 $first) /run/lpu-job
	expect "podman started the container that starts with the machine" is true podman inspect -f '{{.State.Running}}' always
	expect "which has its LPU" podman exec always stat "/dev/$(ls /sys/bus/pci/devices/$second/uio)"
}
# What a container has to say of an LPU; the node's number is the kernel's.
has() { # NAME ADDRESS
	printf '%s\n' "LPU_DEVICE_INDEX=${1#lpu}" "LPU_DRIVER_VERSION=$(cat $driver/module/version)" LPU_RING_ORDER=0 "LPU_VISIBLE_DEVICES=${1#lpu}" \
		"node $(ls "/sys/bus/pci/devices/$2/uio")" opens "made another"
}

# shellcheck source=test/vm/guest/people.sh
. /mnt/people.sh

install() {
	expect "no unit failed before the package came" is "" failed
	command install /mnt/driver.sh /usr/local/sbin/vm-lpu-driver
	command install -m 644 /mnt/driver.conf /etc/modprobe.d/
	modprobe vm_lpu
	expect "eight LPUs have their driver" within 60 is 8 drivers
	expect "installs under a running systemd" dpkg -i /mnt/lpuctl.deb
	expect "and refreshes at once: the driver is another one than these cards want" is 3 exit_code
	cp /mnt/config.yaml /etc/lpuctl/
	expect "a configuration with this driver makes a spec of eight LPUs" within 60 is 8 in_spec

	for unit in $engines; do command install -D -m 644 /mnt/seen.conf "/etc/systemd/system/$unit.service.d/seen.conf"; done
	mkdir -p $container/{bin,dev,proc,sys,tmp,run,etc}
	cp /bin/busybox $container/bin/
	for applet in sh env grep sort stat mknod rm sleep true; do ln -s busybox $container/bin/$applet; done
	cp /mnt/job.sh $container/
	cp /mnt/lpu-job.service /etc/systemd/system/
	command install -D /mnt/patience.sh /etc/systemd/system-generators/patience
	systemctl daemon-reload
	expect "a unit with a container starts" systemctl enable --now lpu-job.service
	expect "podman makes a container that starts with the machine" \
		podman create --name always --restart always --stop-signal KILL --network none --device hyperaccel.ai/lpu=lpu1 --rootfs $container sleep 100000
	expect "no unit failed" is "" failed
}

eight() {
	booted 8
	expect "the refresh found nothing" is 0 exit_code
	expect "serve is off" is inactive state lpuctl-serve.service ActiveState

	local start=$EPOCHREALTIME
	echo $first >$driver/unbind
	expect "unbinding the driver takes the LPU from the spec" within 60 is 7 in_spec
	say "note $(since "$start") ms from unbinding to the spec"
	expect "and from podman" not run_with lpu0
	start=$EPOCHREALTIME
	echo $first >$driver/bind
	expect "binding it again brings it back" within 60 is 8 in_spec
	say "note $(since "$start") ms from binding to the spec"
	expect "and podman hands it out" run_with lpu0

	expect "the host takes a card out" ask unplug 7
	expect "which takes it from the spec" within 60 is 7 in_spec
	expect "the host puts a card in" ask plug 7
	expect "which brings it into the spec" within 60 is 8 in_spec

	local address
	for address in $(cd $driver && echo 0000:*); do echo "$address" >$driver/unbind; done
	expect "without any driver the spec goes" within 60 not test -e $spec
	expect "which is no failure" within 60 is 3 exit_code
	for address in /sys/bus/pci/devices/*; do
		[ "$(cat "$address/device")" != 0x505d ] || echo "${address##*/}" >$driver/bind
	done
	expect "and eight at once come back" within 60 is 8 in_spec
	remedies
	expect "no unit failed in all this" is "" failed
	measure
}

# Carries out what findings about lpu0 say, word for word.
remedies() {
	local node
	node=/dev/$(ls /sys/bus/pci/devices/$first/uio)
	echo $first >$driver/unbind
	expect "the remedy for no-driver works" mended no-driver
	taken_by pci-stub
	expect "the remedy for wrong-driver works" mended wrong-driver
	taken_by vfio-pci
	expect "the remedy for passed-through works" mended passed-through
	rm "$node"
	expect "the remedy for node-missing works" mended node-missing
	rm "$node"
	mknod "$node" c 1 3
	expect "the remedy for node-mismatch works" mended node-mismatch
	expect "and all eight are in the spec" within 60 is 8 in_spec
	expect "podman hands the first one out" run_with lpu0
}
taken_by() { # DRIVER: gives it the first LPU
	modprobe "$1"
	echo "$1" >/sys/bus/pci/devices/$first/driver_override
	echo $first >$driver/unbind
	echo $first >"/sys/bus/pci/drivers/$1/bind"
}
mended() { # ID: does what the finding about lpu0 says, and looks whether it is gone
	local remedy
	remedy=$(described | grep -A 1 "\[$1\]" | sed -n 's/^ *remedy: //p')
	[ -n "$remedy" ] || { described; return 1; }
	sh -ec "${remedy##*: }" || return # words stand before the colon
	not grep "\[[a-z-]*\]" <(described)
}
described() { lpuctl describe lpu0 2>/dev/null; }

sick() {
	booted 7
	expect "the sick LPU is none of them" not grep -q '"lpu3"' $spec
	expect "the refresh says so" is 3 exit_code
	expect "and the journal says why" grep -q 'lpu3: left out of the spec: no driver' <(journalctl -b -u lpuctl-cdi-refresh.service)
	expect "podman does not hand it out" not run_with lpu3
	serve_in_its_unit
	expect "a card falls off the bus" ask gone 5 1
	expect "and its state is not known: it may be in a reset" grep -q '^lpu5 .* unknown ' <(lpuctl list 2>/dev/null)
	expect "serve takes it for dead when it has been so for a while" within 60 is unhealthy judged lpu5
	expect "the refresh runs all the same" systemctl start lpuctl-cdi-refresh.service
	expect "serve stops" systemctl stop lpuctl-serve.service
	expect "no unit failed in all this" is "" failed
}

# What the sandbox of its unit might keep from serve: events of the kernel, the spec, its memory.
serve_in_its_unit() {
	mkdir -p /var/lib/kubelet/device-plugins
	expect "serve starts in its unit" systemctl start lpuctl-serve.service
	expect "it says that an LPU is healthy" within 60 is healthy judged lpu1
	echo $second >$driver/unbind
	expect "it sees that the driver is unbound" within 60 is unhealthy judged lpu1
	expect "and takes the LPU from the spec" within 60 is 6 in_spec
	echo $second >$driver/bind
	expect "it sees that the driver is bound" within 60 is healthy judged lpu1
	expect "and brings the LPU back" within 60 is 7 in_spec
	expect "events of the kernel reach it" uevents
}
judged() { lpuctl health "$1" --no-headers 2>/dev/null | awk '{print $4}'; } # what serve says
uevents() {
	local received
	exec 4<>/dev/tcp/127.0.0.1/9477
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&4
	received=$(sed -n 's|^lpuctl_uevents_total{what="received"} ||p' <&4)
	exec 4<&-
	[ "${received:-0}" -gt 0 ] || { echo "received: $received"; return 1; }
}

none() {
	booted 0
	expect "there is no spec" not test -e $spec
	expect "the refresh says so" is 4 exit_code
	expect "a unit that wants an LPU is left out" is inactive state lpu-job.service ActiveState
	expect "the host puts a card in" ask plug 0
	expect "which makes a spec" within 60 is 1 in_spec
	expect "and the unit can start" systemctl start lpu-job.service
	expect "its container has the LPU" diff <(has lpu0 $first) /run/lpu-job
	expect "no unit failed in all this" is "" failed
}

late() {
	booted 0
	expect "the refresh did not wait for the drivers" is 3 exit_code
	expect "a unit that wants an LPU is left out" is inactive state lpu-job.service ActiveState
	touch /run/drivers-may-come
	expect "the spec comes with the drivers" within 150 is 8 in_spec
	expect "and the unit can start" systemctl start lpu-job.service
	expect "its container has the LPU" diff <(has lpu0 $first) /run/lpu-job
	expect "no unit failed in all this" is "" failed
}

# Whole processes, in turn with lspci, which reads all PCI functions, too.
measure() {
	local i v=() r=() l=() version refresh lspci
	for i in {1..21}; do
		v+=("$(took lpuctl version)")
		l+=("$(took lspci -D -n)")
		r+=("$(took lpuctl cdi refresh)")
	done
	version=$(shortest "${v[@]}") refresh=$(shortest "${r[@]}") lspci=$(shortest "${l[@]}")
	say "note the shortest of $i: lspci -D -n $lspci us, lpuctl version $version us, lpuctl cdi refresh $refresh us"
	expect "lpuctl version takes at most 1.5 times lspci -D -n" test $((version * 10)) -le $((lspci * 15))
	expect "lpuctl cdi refresh takes at most 3 times lspci -D -n" test "$refresh" -le $((lspci * 3))
}
took() { # COMMAND...: microseconds
	local start=$EPOCHREALTIME end
	"$@" >/dev/null 2>&1
	end=$EPOCHREALTIME
	echo $((${end/./} - ${start/./}))
}
since() { # START: milliseconds
	local now=$EPOCHREALTIME
	echo $(((${now/./} - ${1/./}) / 1000))
}
# What else the machine has to do makes a run longer, and none shorter.
shortest() { printf '%s\n' "$@" | sort -n | sed -n 1p; }

# The boot is over when all units are started; "degraded" is looked at later.
systemctl is-system-running --wait >/dev/null
say "note booted in $(cut -d' ' -f1 /proc/uptime) s"
case $boot in
none) expect "no LPU on the bus" is 0 on_bus ;;
*) expect "eight LPUs on the bus" is 8 on_bus ;;
esac
"$boot"
