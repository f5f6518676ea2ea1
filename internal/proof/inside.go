package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Answer is what a program in a container finds.
type Answer struct {
	Opened      []string  `json:"opened"` // nodes that were opened for reading and writing, and closed
	Differences []string  `json:"differences"`
	Libraries   []Library `json:"libraries"`
	// Nothing of what was promised is there: the engine has ignored the devices.
	Nothing bool `json:"nothing,omitempty"`
}

// promiseMax is more bytes than a promise has: mostly the ring table.
const promiseMax = 4 << 20

// Inside is where a promise is compared with what is there.
type Inside struct {
	Root    string   // "/" in a container
	Environ []string // as NAME=VALUE
}

// Serve reads a promise and writes the answer to it. It does not wait for the end of what
// it reads, which nerdctl may not pass on.
func (in *Inside) Serve(r io.Reader, w io.Writer) error {
	var p Promise
	if err := json.NewDecoder(io.LimitReader(r, promiseMax)).Decode(&p); err != nil {
		return fmt.Errorf("this is no promise of doctor --run: %w", err)
	}
	return json.NewEncoder(w).Encode(in.Look(&p))
}

// Look compares.
func (in *Inside) Look(p *Promise) *Answer {
	a := &Answer{Opened: []string{}, Differences: []string{}, Libraries: []Library{}}
	kept := in.nodes(p, a) + in.variables(p, a)
	mounts, err := in.mounts()
	if err != nil {
		a.differ("the mounts of the container cannot be read: %v", err)
	}
	kept += in.mounted(p, mounts, a)
	a.Nothing = kept == 0 && len(p.Nodes) > 0
	in.others(p, a)
	in.table(p, a)
	a.Libraries = in.libraries(p)
	return a
}

func (a *Answer) differ(format string, args ...any) {
	a.Differences = append(a.Differences, fmt.Sprintf(format, args...))
}

func (in *Inside) path(p string) string { return filepath.Join(in.Root, p) }

// nodes opens each node that was promised, and returns how many are there. No ioctl is
// made: a driver resets nothing at open.
func (in *Inside) nodes(p *Promise, a *Answer) (there int) {
	for _, n := range p.Nodes {
		var st unix.Stat_t
		err := unix.Stat(in.path(n.Path), &st)
		if err != nil {
			a.differ("%s: %v", n.Path, err)
			continue
		}
		there++
		if st.Mode&unix.S_IFMT != unix.S_IFCHR {
			a.differ("%s is no character device", n.Path)
			continue
		}
		major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
		if known := n.Major != 0 || n.Minor != 0; known && (major != n.Major || minor != n.Minor) {
			a.differ("%s is %d:%d, and on the host %d:%d%s", n.Path, major, minor, n.Major, n.Minor, owner(p, major, minor))
			continue // it may be any device
		}
		fd, err := unix.Open(in.path(n.Path), unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			a.differ("%s cannot be opened for reading and writing: %v%s", n.Path, err, whyShut(err))
			continue
		}
		_ = unix.Close(fd)
		a.Opened = append(a.Opened, n.Path)
	}
	return there
}

// owner says of which LPU device numbers are.
func owner(p *Promise, major, minor uint32) string {
	for _, n := range slices.Concat(p.Nodes, p.Others) {
		if n.Major == major && n.Minor == minor {
			return fmt.Sprintf(": that is %s of %s", n.Path, n.LPU)
		}
	}
	return ""
}

func whyShut(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return ": the device cgroup of the container forbids it"
	case errors.Is(err, unix.EACCES):
		return ": owner, group or mode of the node, or SELinux, forbids it"
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return ": no driver has these numbers"
	}
	return ""
}

// variables compares the environment, and returns how many variables are as promised.
func (in *Inside) variables(p *Promise, a *Answer) (right int) {
	for _, v := range p.Env {
		// Of several the last counts for most programs, and the runtime leaves one.
		value, set := "", false
		for _, have := range in.Environ {
			if text, ok := strings.CutPrefix(have, v.Name+"="); ok {
				value, set = text, true
			}
		}
		switch {
		case !set:
			a.differ("the variable %s is not set, and was promised as %s", v.Name, v.Value)
		case value != v.Value:
			a.differ("the variable %s is %s, and was promised as %s", v.Name, value, v.Value)
		default:
			right++
		}
	}
	return right
}

// mountedAt is a line of mountinfo: proc_pid_mountinfo(5).
type mountedAt struct {
	path     string
	readOnly bool
}

func (in *Inside) mounts() (list []mountedAt, err error) {
	data, err := os.ReadFile(in.path("/proc/self/mountinfo"))
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 5 {
			list = append(list, mountedAt{unescape(fields[4]), slices.Contains(strings.Split(fields[5], ","), "ro")})
		}
	}
	return list, err
}

// unescape reads a path of mountinfo, which has space, tab, newline and backslash in octal.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// mounted compares the mounts, and returns how many are there.
func (in *Inside) mounted(p *Promise, mounts []mountedAt, a *Answer) (there int) {
	for _, m := range p.Mounts {
		var st unix.Stat_t
		err := unix.Stat(in.path(m.Path), &st)
		// Of several mounts on one path the last is seen.
		at := -1
		for i := range mounts {
			if mounts[i].path == filepath.Clean(m.Path) {
				at = i
			}
		}
		switch {
		case err != nil:
			a.differ("the mount %s: %v", m.Path, err)
		case at < 0:
			a.differ("nothing is mounted on %s", m.Path)
		case m.Inode != 0 && (st.Dev != m.Dev || st.Ino != m.Inode):
			there++
			a.differ("on %s is something else than %s of the host", m.Path, m.Host)
		case !mounts[at].readOnly:
			there++
			a.differ("%s can be written to", m.Path)
		default:
			there++
		}
	}
	return there
}

// table compares the ring table.
func (in *Inside) table(p *Promise, a *Answer) {
	if p.Table == nil {
		return
	}
	data, err := os.ReadFile(in.path(p.Table.Path))
	switch {
	case err != nil:
		a.differ("the ring table: %v", err)
	case !bytes.Equal(data, p.Table.Data):
		a.differ("the ring table %s is not that of %s", p.Table.Path, strings.Join(p.LPUs, " "))
	}
}

// memMajor is the major number of the memory devices, such as null, which every container
// has (Documentation/admin-guide/devices.txt).
const memMajor = 1

// others looks for nodes of LPUs that the container did not ask for: by path and, whatever
// they are named, by number.
func (in *Inside) others(p *Promise, a *Answer) {
	asked := func(path string) bool {
		return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Path == path })
	}
	_ = filepath.WalkDir(in.path("/dev"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what cannot be read has no node that could be opened
		}
		shown := "/" + strings.TrimPrefix(strings.TrimPrefix(path, in.Root), "/")
		var st unix.Stat_t
		char := unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR
		for _, n := range p.Others {
			same := char && unix.Major(st.Rdev) == n.Major && unix.Minor(st.Rdev) == n.Minor && n.Major > memMajor
			if (n.Path == shown || same) && !asked(shown) {
				a.differ("%s is there: the node of %s, which was not asked for", shown, n.LPU)
				break
			}
		}
		return nil
	})
}
