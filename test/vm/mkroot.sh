#!/bin/bash
# Makes the virtual machine's disk (root.img), kernel and initrd of Debian packages. Needs root, debootstrap and
# mkfs.ext4; takes minutes and is done once: the result is kept in a cache. Usage: mkroot.sh DIR
set -euo pipefail
dir=${1:?usage: mkroot.sh DIR}
root=$dir/root
mkdir -p "$dir"

# podman needs any container-network-stack, and debootstrap takes no such choice: netavark.
packages=systemd-sysv,udev,dbus,podman,crun,netavark,uidmap,containerd,linux-image-amd64,initramfs-tools,pciutils,kmod,busybox-static
# shellcheck disable=SC2016 # not for the shell to expand
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
debootstrap --variant=minbase --include=$packages bookworm "$root" "$mirror"

# The initrd only has to find the disk: with every module in it the boot takes two seconds longer.
echo MODULES=list >"$root/etc/initramfs-tools/conf.d/vm"
printf '%s\n' virtio_pci virtio_blk ext4 >>"$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u

echo vm >"$root/etc/hostname"
# They want a network, which is not there.
ln -s /dev/null "$root/etc/systemd/system/apt-daily.timer"
ln -s /dev/null "$root/etc/systemd/system/apt-daily-upgrade.timer"
# What is tested comes on a second disk, so that this one stays as it is.
cat >"$root/etc/systemd/system/vm-test.service" <<'UNIT'
[Unit]
Description=What the second disk has to run
[Service]
ExecStartPre=/bin/mount -o ro /dev/vdb /mnt
ExecStart=/mnt/run.sh
[Install]
WantedBy=multi-user.target
UNIT
chroot "$root" systemctl enable vm-test.service

cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd.img"
chroot "$root" apt-get clean
mkfs.ext4 -q -d "$root" "$dir/root.img" 2G
rm -rf "$root"
