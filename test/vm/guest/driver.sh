#!/bin/sh
# Loads the driver, which takes as many seconds as the kernel's command line says. It knows no card before it is told.
sleep "$(sed 's/.*driver=\([0-9]*\).*/\1/' /proc/cmdline)"
modprobe uio_pci_generic
echo 10ee 505d 2>/dev/null >/sys/bus/pci/drivers/uio_pci_generic/new_id || true # another card was faster
