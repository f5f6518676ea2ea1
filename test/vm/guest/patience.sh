#!/bin/sh
# A generator of systemd (systemd.generator(7)). The emulated processor is fifty times slower than a real one, and shares that with
# others: the refresh waits as long as udev needs. Only on the boot "late" its wait has to end before the drivers come.
if grep -q vm=late /proc/cmdline; then wait=20; else wait=300; fi
mkdir -p "$1/lpuctl-cdi-refresh.service.d"
cat >"$1/lpuctl-cdi-refresh.service.d/patience.conf" <<END
[Service]
Environment=UDEV_SETTLE_SECONDS=$wait
TimeoutStartSec=310s
END
