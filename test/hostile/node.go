package hostile

import (
	"fmt"
	"strings"
)

// Reopens is a script that tries to open a hidden node of these numbers: by its name, by one that it makes itself, by another name, and by
// way of a directory, a namespace and a process. It tries once more when there is a file of the name again.
func Reopens(node string, major, minor uint32, again string) string {
	const script = `
open() { for n in "$NODE" "$NODE.x" /dev/shm/x /proc/$PPID/root"$NODE" /proc/self/cwd/"${NODE##*/}" /proc/self/fd/*/"${NODE##*/}"; do
	[ -c "$n" ] && (exec 3<"$n") 2>/dev/null && echo "opens $n"; done; true; }
cd "${NODE%/*}"
mknod "$NODE.x" c MAJOR MINOR; mknod /dev/shm/x c MAJOR MINOR; rm -f "$NODE"; mv "$NODE" "$NODE.x"; ln "$NODE" /dev/shm/x
unshare -rm sh -c "umount '$NODE'; umount -l '${NODE%/*}'; mount -o remount,bind,dev '$NODE'; (exec 3<'$NODE') && echo opens in a namespace"
open
echo tried
until [ -e "AGAIN" ]; do sleep 0.1; done
open
echo tried again
exec sleep 1000`
	numbers := strings.NewReplacer("MAJOR", fmt.Sprint(major), "MINOR", fmt.Sprint(minor), "AGAIN", again)
	return fmt.Sprintf("NODE='%s'", node) + numbers.Replace(script)
}
