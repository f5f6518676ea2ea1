#!/bin/sh
# Installs lpuctl from the unpacked archive that this script is in, or removes it again. It asks nothing. All files are first copied
# beside their places and then renamed, so that a failure, such as a full disk, leaves everything as it was. What is installed is
# written down in PREFIX/share/lpuctl/installed, by which a later version and --uninstall know what to remove.
set -eu
umask 022
export LC_ALL=C # for sort

usage() {
	cat <<-END
		usage: install.sh [--prefix DIR] [--units]
		       install.sh [--prefix DIR] --uninstall

		Installs the program, manual pages, completions and documentation of lpuctl into DIR, /usr/local
		unless it is given. An ordinary user gives --prefix ~/.local.
		  --units      also install and start the systemd units that keep the CDI spec up to date (root only)
		  --uninstall  remove what this script has installed in DIR
	END
}
fail() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}

archive=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/usr/local
case $archive in */share/lpuctl) prefix=${archive%/share/lpuctl} ;; esac # the script itself is installed, too
units='' uninstall=''
while [ $# -gt 0 ]; do
	case $1 in
	--prefix)
		[ $# -gt 1 ] || fail "--prefix needs a directory"
		prefix=$2
		shift
		;;
	--prefix=*) prefix=${1#--prefix=} ;;
	--units) units=yes ;;
	--uninstall) uninstall=yes ;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done
case $prefix in
\~/*) prefix=$HOME/${prefix#??} ;; # a shell leaves --prefix=~/DIR as it is
/*) ;;
?*) prefix=$PWD/$prefix ;;
esac
while [ "$prefix" != "${prefix%/}" ]; do prefix=${prefix%/}; done
case $prefix in '' | /usr) fail "--prefix: / and /usr are for the .deb and the .rpm" ;; esac
record=$prefix/share/lpuctl/installed
watched='lpuctl-cdi-refresh.path lpuctl-cdi-refresh.service lpuctl-runtime-check.timer'
leases=lpuctl-lease.socket

# installed_units prints the units of lpuctl that the record names.
installed_units() { [ ! -e "$record" ] || sed -n 's|^/etc/systemd/system/\(lpuctl-[^/]*\)$|\1|p' "$record"; }
systemd_runs() { [ -d /run/systemd/system ]; }

# remove_listed removes the files that a list on stdin names, and then its directories, as far as they are empty. Directories end in
# a slash, and stand before what is in them.
remove_listed() {
	sort -r | while IFS= read -r path; do
		case $path in
		*/) rmdir "$path" 2>/dev/null || true ;;
		*) rm -f "$path" ;;
		esac
	done
}

if [ -n "$uninstall" ]; then
	[ -e "$record" ] || fail "$record is not there: this script has installed nothing in $prefix"
	[ -w "$record" ] || fail "$prefix: no permission to change it"
	units=$(installed_units)
	if [ -n "$units" ]; then
		if systemd_runs; then
			# shellcheck disable=SC2086 # several units
			systemctl --quiet disable --now $units 2>/dev/null || true
		fi
		"$prefix/bin/lpuctl" --quiet cdi remove || true # of LPUs that nobody watches any more
		rm -f /run/cdi/.hyperaccel.ai-lpu.lock
	fi
	list=$(cat "$record")
	printf '%s\n' "$list" | grep -Fvx "$record" | remove_listed
	rm -f "$record" # last of the files: whoever is interrupted before can uninstall once more
	printf '%s\n' "$list" | grep '/$' | remove_listed
	if [ -n "$units" ] && systemd_runs; then systemctl daemon-reload; fi
	echo "removed lpuctl from $prefix: $(printf '%s\n' "$list" | grep -vc '/$') files"
	exit 0
fi

[ -e "$archive/bin/lpuctl" ] || fail "$archive/bin/lpuctl is not there: run the script in the unpacked archive"
# A shell would take a program of another architecture for a script. This is what the program's ELF header says.
case $(uname -m)$(od -An -t u2 -j 18 -N 2 "$archive/bin/lpuctl") in
x86_64*62 | aarch64*183) ;;
*) fail "$archive/bin/lpuctl is for another kind of machine than this one, $(uname -m)" ;;
esac
# An upgrade keeps units, and what the administrator has disabled of them.
former=$(installed_units)
if [ -z "$units" ] && [ -n "$former" ]; then units=kept; fi
if [ -n "$units" ]; then
	[ "$(id -u)" = 0 ] || fail "--units: only root can install units"
	systemd_runs || fail "--units: systemd does not run on this machine"
	[ ! -e /usr/lib/systemd/system/lpuctl-cdi-refresh.service ] || fail "--units: a package has installed the units of lpuctl already"
	case $prefix in
	/home/* | /root/* | /run/* | /tmp/* | /var/tmp/*) fail "--units: what runs at boot does not belong in $prefix" ;;
	*[!A-Za-z0-9/._-]*) fail "--units: $prefix has a character that a unit file would have to quote" ;;
	esac
fi

# plan prints of each file where it is in the archive and where it goes.
plan() {
	(cd "$archive" && find bin share -type f) | while read -r file; do echo "$file $prefix/$file"; done
	for file in LICENSE CHANGELOG.md third-party-licenses.txt; do echo "$file $prefix/share/doc/lpuctl/$file"; done
	echo "install.sh $prefix/share/lpuctl/install.sh"
	if [ -n "$units" ]; then
		(cd "$archive" && find lib/systemd/system lib/sysusers.d lib/tmpfiles.d lib/udev -type f) |
			while read -r file; do echo "$file /etc/${file#lib/}"; done
	fi
}
staged() { printf '%s/.%s.lpuctl-new\n' "${1%/*}" "${1##*/}"; }
# missing prints the directories above a path that are not there, the outermost first.
missing() {
	if [ ! -d "${1%/*}/" ]; then
		missing "${1%/*}"
		printf '%s/\n' "${1%/*}"
	fi
}
undo() {
	trap - EXIT
	while IFS= read -r target; do rm -f "$(staged "$target")"; done <"$work/files"
	remove_listed <"$work/directories"
	rm -rf "$work"
	fail "nothing is installed, nothing has changed"
}

work=$(mktemp -d)
: >"$work/directories"
plan >"$work/plan"
cut -d ' ' -f 2- "$work/plan" >"$work/files"
printf '%s\n' "$record" >>"$work/files"
trap undo EXIT
trap 'exit 1' HUP INT TERM
while read -r file target; do
	[ ! -d "$target" ] || fail "$target is a directory"
	missing "$target" | while IFS= read -r directory; do
		printf '%s\n' "$directory" >>"$work/directories"
		mkdir "${directory%/}"
	done
	new=$(staged "$target")
	case $file in
	lib/systemd/*) sed "s|/usr/bin/lpuctl|$prefix/bin/lpuctl|g" "$archive/$file" >"$new" ;;
	*) cp "$archive/$file" "$new" ;;
	esac
	case $file in
	bin/* | install.sh) chmod 755 "$new" ;;
	*) chmod 644 "$new" ;;
	esac
done <"$work/plan"
version=$("$(staged "$prefix/bin/lpuctl")" version) || fail "programs cannot be run in $prefix"
: >"$work/before"
[ ! -e "$record" ] || cat "$record" >"$work/before"
sort -u "$work/before" "$work/directories" "$work/files" >"$(staged "$record")"

trap '' HUP INT TERM
trap - EXIT
mv -f "$(staged "$record")" "$record" # first, so that --uninstall knows all files whatever comes next
while IFS= read -r target; do
	[ "$target" = "$record" ] || mv -f "$(staged "$target")" "$target"
done <"$work/files"
# What only the version before had.
grep -v '/$' "$work/before" | grep -Fvx -f "$work/files" | remove_listed
{ grep '/$' "$work/before" || true; cat "$work/directories" "$work/files"; } | sort -u >"$(staged "$record")"
mv -f "$(staged "$record")" "$record"
rm -rf "$work"

echo "installed $version in $prefix:"
echo "  program      $prefix/bin/lpuctl"
echo "  manual       $prefix/share/man"
echo "  completions  bash, fish, zsh, below $prefix/share"
echo "  documents    $prefix/share/doc/lpuctl"
if [ -n "$units" ]; then
	systemd-sysusers lpuctl.conf || true
	systemctl daemon-reload
	systemd-tmpfiles --create lpuctl.conf || true
	udevadm control --reload 2>/dev/null || true
	# What the version before did not have was disabled by nobody.
	added="$watched $leases"
	# shellcheck disable=SC2086 # several units
	if [ "$units" = kept ]; then added=$(printf '%s\n' $added | grep -Fvx -e "$former" | xargs); fi
	# That this machine has no LPU, or one that is sick, is no failure of the installation.
	# shellcheck disable=SC2086
	systemctl try-restart $watched || true
	if [ -n "$added" ]; then
		# shellcheck disable=SC2086
		systemctl --quiet enable $added
		# shellcheck disable=SC2086
		systemctl start $added || true
	fi
	systemctl try-restart lpuctl-serve.service lpuctl-exporter.service lpuctl-lease.service || true # neither forgets anything
	case $units in
	yes) echo "  units        in /etc/systemd/system; these are enabled and started: $added" ;;
	kept) echo "  units        in /etc/systemd/system; enabled or not as before${added:+; enabled because they are new: $added}" ;;
	esac
fi
case :$PATH: in
*:"$prefix/bin":*) echo "try: lpuctl demo" ;;
*) echo "$prefix/bin is not in PATH. Try: $prefix/bin/lpuctl demo" ;;
esac
echo "to remove it: $prefix/share/lpuctl/install.sh --uninstall"
