#!/bin/busybox sh
# shellcheck shell=dash disable=SC2065,SC2059 # "test" is a program here; a byte is written by its number
# The first process of the guest: it prepares what lpuctl needs, runs the tests, and ends the machine with their exit code.
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
for dir in /tmp /run /var/lib; do
	mkdir -p $dir
	mount -t tmpfs none $dir
done
mkdir /run/cdi /dev/virtio-ports
ln -s /run /var/run
for module in /modules/*.ko; do insmod "$module"; done
# The kernel learns the names of the ports after the ports, one after the other.
until [ -e /sys/class/virtio-ports/vport0p3/name ]; do sleep 0.01; done
for port in /sys/class/virtio-ports/*; do
	read -r name <"$port/name"
	ln -s "/dev/${port##*/}" "/dev/virtio-ports/$name"
done
ip link set lo up
# The kernel hands its unknown arguments on as variables.
/lab/test -test.v=test2json -test.timeout="$TIMEOUT" -test.run="$RUN" -test.skip="$SKIP" >/dev/virtio-ports/out 2>&1
code=$?
echo "tests ended with $code after $(cut -d ' ' -f 1 /proc/uptime) s" >/dev/kmsg
[ $code = 0 ] || echo w >/proc/sysrq-trigger # the kernel tells what hangs in it
dmesg >/dev/ttyS0
# isa-debug-exit: QEMU ends with 2*code+1.
printf "\\$(printf %o $code)" | dd of=/dev/port bs=1 seek=244 conv=notrunc 2>/dev/null
