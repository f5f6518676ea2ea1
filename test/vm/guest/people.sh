# shellcheck shell=bash disable=SC2016,SC2154,SC2317 # run.sh sources it; some code is for other shells
# The boot on which people share the machine: alice, who may lease LPUs, bob, who may not, and root; first on a host as it is installed, then
# on one that is prepared as docs/containers.md says.

alice=/home/alice/container
# What lets a container run this Debian's perl.
perl=(-v /usr:/usr:ro -v /mnt:/mnt:ro)
lock=(/usr/bin/perl /mnt/lock.pl)

people() {
	booted 8
	useradd --create-home --shell /bin/bash --groups lpu alice
	useradd --create-home --shell /bin/bash bob
	for root in $container $alice; do
		[ -e "$root" ] || cp -a "$container" "$root"
		mkdir -p "$root/usr" "$root/mnt"
		ln -sf usr/lib "$root/lib"
		ln -sf usr/lib64 "$root/lib64"
	done
	chown -R alice: $alice
	local node
	for node in /dev/uio*; do chgrp lpu "$node" && chmod 660 "$node"; done

	expect "root's program locks memory" lpuctl -q run -- "${lock[@]}"
	expect "a container of root's podman does not by itself" not rooted podman run --rm --network none "${perl[@]}" --rootfs "$container" "${lock[@]}"
	expect "started by lpuctl run it does" lpuctl -q run -- podman run --rm --network none '{args}' "${perl[@]}" --rootfs "$container" "${lock[@]}"
	expect "an ordinary user is told that memory cannot be locked" as alice "ulimit -l 8192; lpuctl run -- true 2>&1 | grep -q memlock-low"
	expect "and it cannot" as alice "ulimit -l 8192; ! lpuctl -q run -- ${lock[*]}"
	expect "who is not in the group gets no lease, and is told what to do" as bob "lpuctl run -- true 2>&1 | grep -q 'group lpu'"
	expect "a node that the group may open opens in a container of a user's podman" opens
	left_behind
	a_unit
	expect "nobody has a lease any more" within 20 not leased

	mkdir -p /etc/security/limits.d
	command install -m 644 /usr/share/lpuctl/memlock/limits.conf /etc/security/limits.d/lpuctl-memlock.conf
	for unit in user@ containerd; do
		command install -D -m 644 /usr/share/lpuctl/memlock/unit.conf /etc/systemd/system/$unit.service.d/lpuctl-memlock.conf
	done
	systemctl daemon-reload
	systemctl restart containerd.service
	expect "on a prepared host who is in the group may lock any amount" is unlimited as alice "ulimit -H -l"
	expect "an ordinary user's program locks memory" as alice "lpuctl -q run -- ${lock[*]}"
	expect "and no warning is left" as alice "! lpuctl run -- true 2>&1 | grep memlock-low"
	expect "a container of a user's podman does" as alice "lpuctl -q run -- podman run --rm --network none {args} ${perl[*]} --rootfs $alice ${lock[*]}"
	expect "who is not in the group may not" not grep -x unlimited <(as bob "ulimit -H -l")
	expect "what the user's systemd starts may" is infinity state "user@$(id -u alice).service" LimitMEMLOCK
	expect "pods may: they inherit it from containerd" grep -q '^Max locked memory *unlimited *unlimited' \
		"/proc/$(state containerd.service MainPID)/limits"
	expect "the arbiter stops when it should" systemctl stop lpuctl-lease.service
	expect "and stays so" is inactive state lpuctl-lease.service ActiveState
	expect "no unit failed in all this" is "" failed
}

as() { su -l "$1" -c "$2"; } # USER SCRIPT: as after a login; PAM then gives what the first process may, an eighth of the memory
rooted() { (ulimit -l 8192 && "$@"); }

opens() {
	as alice "lpuctl -q run -n 2 -- podman run --rm --network none '{args}' --rootfs $alice sh -c 'for n in /dev/uio*; do : 3<>\$n || exit; done'"
}

leased() { lpuctl list -o json 2>/dev/null | grep '"leased"'; }

# A container that is left behind keeps its lease until it ends. Podman leaves a process of its own behind too, which must not keep it.
left_behind() {
	expect "a user leaves a container behind" \
		as alice "lpuctl -q run -n 2 -- podman run --rm -d --name left --network none '{args}' --rootfs $alice sleep 100000"
	expect "it has its lease" is 2 grep -c 'alice' <(lpuctl list --no-headers 2>/dev/null)
	killed_arbiter
	expect "it has its lease after that too" is 2 grep -c 'alice' <(lpuctl list --no-headers 2>/dev/null)
	expect "root's next one gets the others" is "0 1 2 3 4 5 6 7" hers_and_others
	expect "the container ends" as alice "podman rm -f -t 0 left"
}

# A plain kill ends the arbiter, and systemd starts it again.
killed_arbiter() {
	local first
	first=$(state lpuctl-lease.service MainPID)
	expect "the arbiter is killed" kill "$first"
	expect "and another one takes its place" within 120 another_than "$first"
}
another_than() { # PID
	local now
	now=$(state lpuctl-lease.service MainPID)
	[ "$now" != 0 ] && [ "$now" != "$1" ]
}

# Which alice gets depends on whether those of the lease before have been seen closed.
hers_and_others() {
	{
		lpuctl list --no-headers 2>/dev/null | sed -n '/alice/s/^lpu\([0-9]*\) .*/\1/p'
		lpuctl -q run -n 6 -- sh -c 'echo "$LPU_VISIBLE_DEVICES"' | tr , '\n'
	} | sort | paste -sd' '
}

# The unit of docs/run.md.
a_unit() {
	sed -n '/^    \[Service\]/,/^$/s/^    //p' /mnt/run.md | sed "s|IMAGE|--network none --rootfs $container sleep 100000|; s|stop model|stop -t 0 model|" \
		>/etc/systemd/system/model.service
	systemctl daemon-reload
	expect "a unit starts a container" systemctl start model.service
	expect "which has a lease" is 2 grep -c 'root(0)' <(lpuctl list --no-headers 2>/dev/null)
	expect "the unit stops" systemctl stop model.service
}
