package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// classDevices are the devices of one class, by the PCI function they belong to: paths
// below the root such as /sys/devices/.../0000:43:00.1/drm/renderD130.
type classDevices map[pci.Address][]string

// listClass lists a directory of sys/class. Its entries are links to the class devices.
// The path of a class device contains the PCI function that it belongs to. A class that
// does not exist has no devices.
func (s *scan) listClass(class string) (classDevices, error) {
	links, err := s.tree.Links(class)
	if host.IsAbsent(err) {
		return nil, nil
	}
	devices := classDevices{}
	for _, device := range links {
		if a, ok := functionOf(device); ok {
			devices[a] = append(devices[a], device)
		}
	}
	return devices, err
}

// functionOf returns the PCI function of a class device: the nearest one above it in its
// path.
func functionOf(devicePath string) (pci.Address, bool) {
	for p := path.Dir(devicePath); len(p) > 1; p = path.Dir(p) {
		if a, err := pci.Parse(path.Base(p)); err == nil {
			return a, true
		}
	}
	return pci.Address{}, false
}

// nodes applies the rules in order; the first that finds a node wins. If a rule finds
// more than one node, that is an error, because each of them may be the wrong device.
func (s *scan) nodes(rules []string, lpu *LPU) ([]Node, error) {
	for _, rule := range rules {
		if template, ok := strings.CutPrefix(rule, "path:"); ok {
			filled := strings.NewReplacer("{index}", strconv.Itoa(lpu.Index), "{address}", lpu.Address.String()).Replace(template)
			return []Node{{Path: path.Clean(filled)}}, nil
		}
		subsystem, prefix := classOf(rule)
		var found []Node
		for _, device := range s.classes[subsystem][lpu.Address] {
			if !strings.HasPrefix(path.Base(device), prefix) {
				continue
			}
			n, err := s.classNode(device)
			if host.IsAbsent(err) {
				continue // a class device without a node
			}
			if err != nil {
				return nil, err
			}
			found = append(found, n)
		}
		if len(found) > 1 {
			slices.SortFunc(found, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
			return nil, fmt.Errorf("it has %d nodes of %s, and nothing says which is the LPU's: %s and %s",
				len(found), subsystem, found[0].Path, found[1].Path)
		}
		if len(found) == 1 {
			return found, nil
		}
	}
	return nil, nil
}

// classNode reads the device node of a class device: its numbers from dev ("226:130"),
// and its name from DEVNAME in uevent (drivers/base/core.c, dev_uevent). That name may
// differ from the name of the directory.
func (s *scan) classNode(device string) (Node, error) {
	dir, err := s.tree.Dir(device)
	if err != nil {
		return Node{}, err
	}
	defer dir.Close()
	dev, err := dir.Line("dev")
	if err != nil {
		return Node{}, err
	}
	major, minor, ok := parseDev(dev)
	if !ok {
		return Node{}, dir.Fault("dev", fmt.Errorf("%.20q is not MAJOR:MINOR", dev))
	}
	uevent, err := dir.Text("uevent")
	if err != nil && !host.IsAbsent(err) {
		return Node{}, err
	}
	name := path.Base(device)
	for line := range strings.SplitSeq(uevent, "\n") {
		if value, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			name = value
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if !host.IsPlainName(element) {
			return Node{}, dir.Fault("uevent", fmt.Errorf("%.40q is not a name in /dev", name))
		}
	}
	return Node{Path: "/dev/" + name, Major: major, Minor: minor}, nil
}

// parseDev parses the attribute dev. The kernel has 12 bits of major and 20 of minor
// (include/linux/kdev_t.h). No character device has the major number 0.
func parseDev(text string) (major, minor uint32, ok bool) {
	a, b, ok := strings.Cut(text, ":")
	ma, err1 := strconv.ParseUint(a, 10, 12)
	mi, err2 := strconv.ParseUint(b, 10, 20)
	return uint32(ma), uint32(mi), ok && err1 == nil && err2 == nil && ma > 0
}

// verified returns the nodes of a function that nothing contradicts, each verified where
// that can be. A node that is not the function's makes the LPU unusable, because no
// container may get a wrong device.
func (s *scan) verified(lpu *LPU, nodes []Node) []Node {
	kept := []Node{}
	for _, n := range nodes {
		if id, message := s.verify(lpu.Address, &n); id != "" {
			lpu.reason(id, message, lpu.remake(&n, id))
		} else {
			kept = append(kept, n)
		}
	}
	return kept
}

// nodeTries is how often a node is read that is replaced while it is read.
const nodeTries = 3

// verify finds out whether a node is that of a PCI function. It returns the id and
// message of a finding, or "" if nothing contradicts. The node in /dev is read before and
// after the kernel is asked whose numbers it has, because a driver that is loaded again
// may give them to another card meanwhile.
func (s *scan) verify(a pci.Address, n *Node) (id finding.ID, message string) {
	if !s.seesDev {
		_, id, message = s.ownNumbers(a, *n)
		return id, message
	}
	for range nodeTries {
		before, err := s.lstat(n.Path)
		read, id, message := s.judgeNode(a, *n, before, err)
		if after, _ := s.lstat(n.Path); after.Ino == before.Ino && after.Mode == before.Mode && after.Rdev == before.Rdev {
			*n = read
			return id, message
		}
	}
	return finding.NodeMismatch, n.Path + " is replaced again and again"
}

// judgeNode compares a node with what /dev has at its path, and asks the kernel whose
// numbers these are. Of a hidden node only the kernel can be asked. A node from a path
// rule has no numbers of its own, and gets those of /dev.
func (s *scan) judgeNode(a pci.Address, n Node, st unix.Stat_t, err error) (Node, finding.ID, string) {
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch {
	case HiddenNode(s.real(n.Path), err == nil):
		n.Hidden = true
		fallthrough
	case errors.Is(err, fs.ErrPermission):
		_, id, message := s.ownNumbers(a, n)
		return n, id, message
	case err != nil:
		return n, finding.NodeMissing, n.Path + " is not there, though the driver has made it"
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		n.Directory = st.Mode&unix.S_IFMT == unix.S_IFDIR
		return n, finding.NodeMismatch, fmt.Sprintf("%s is %s, not a character device", n.Path, cmp.Or(wholefile.Kind(st.Mode), "a regular file"))
	case n.Major == 0:
		n.Major, n.Minor = major, minor
	case major != n.Major || minor != n.Minor:
		return n, finding.NodeMismatch, fmt.Sprintf("%s is device %d:%d, but the LPU is %d:%d", n.Path, major, minor, n.Major, n.Minor)
	}
	own, id, message := s.ownNumbers(a, n)
	n.Verified = own
	return n, id, message
}

// ownNumbers reports whether the device numbers of a node are those of a device of the
// PCI function. The kernel has a link from all numbers of character devices to the
// devices: sys/dev/char/226:130 leads to .../0000:43:00.1/drm/renderD130
// (Documentation/ABI/testing/sysfs-dev). If the link leads elsewhere, or is the only one
// that is missing, that is a finding. A tree without any such links, or one that this
// user may not read, says nothing.
func (s *scan) ownNumbers(a pci.Address, n Node) (own bool, id finding.ID, message string) {
	if n.Major == 0 {
		return false, "", "" // from a path rule, and /dev cannot be seen
	}
	numbers := fmt.Sprintf("%d:%d", n.Major, n.Minor)
	device, err := s.tree.Follow(path.Join(CharDevices, numbers))
	if host.IsAbsent(err) {
		if all, _ := s.tree.Names(CharDevices); len(all) == 0 {
			return false, "", ""
		}
		return false, finding.NodeForeign, fmt.Sprintf("%s is device %s, and the kernel has no device of these numbers", n.Path, numbers)
	}
	if errors.Is(err, fs.ErrPermission) {
		return false, "", ""
	}
	function, err2 := s.tree.Follow(a.Dir())
	if err := cmp.Or(err, err2); err != nil {
		return false, finding.NodeForeign, fmt.Sprintf("%s is device %s, and it is not known whose that is: %v", n.Path, numbers, err)
	}
	if device == function || strings.HasPrefix(device, function+"/") {
		return true, "", ""
	}
	owner := device
	if f, ok := functionOf(device); ok {
		owner = f.String()
	}
	return false, finding.NodeForeign, fmt.Sprintf("%s is device %s, which belongs to %s", n.Path, numbers, owner)
}
