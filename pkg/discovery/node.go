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
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// classDevices are the devices of one class, by the PCI function they belong to: paths below the root such as
// /sys/devices/.../0000:43:00.1/drm/renderD130.
type classDevices map[Address][]string

// listClass lists a directory of sys/class. Its entries are links to the class devices. The path of a class device
// contains the PCI function that it belongs to. A class that does not exist has no devices.
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

// functionOf returns the PCI function of a class device: the nearest one above it in its path.
func functionOf(devicePath string) (Address, bool) {
	for p := path.Dir(devicePath); len(p) > 1; p = path.Dir(p) {
		if a, err := ParseAddress(path.Base(p)); err == nil {
			return a, true
		}
	}
	return Address{}, false
}

// nodes applies the rules in order; the first that finds a node wins. If a rule finds more than one node, that is an
// error, because each of them may be the wrong device.
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

// classNode reads the device node of a class device: its numbers from dev ("226:130"), and its name from DEVNAME in
// uevent (drivers/base/core.c, dev_uevent). That name may differ from the name of the directory.
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

// parseDev parses the attribute dev. The kernel has 12 bits of major and 20 of minor (include/linux/kdev_t.h).
func parseDev(text string) (major, minor uint32, ok bool) {
	a, b, ok := strings.Cut(text, ":")
	ma, err1 := strconv.ParseUint(a, 10, 12)
	mi, err2 := strconv.ParseUint(b, 10, 20)
	return uint32(ma), uint32(mi), ok && err1 == nil && err2 == nil
}

// verified returns the nodes that /dev under the root has as sysfs describes them. Any other node makes the LPU unusable,
// because no container may get a wrong device.
func (s *scan) verified(lpu *LPU, nodes []Node) []Node {
	kept := []Node{}
	for _, n := range nodes {
		if id, message := s.verify(&n); id != "" {
			lpu.reason(id, message, lpu.remake(&n, id))
		} else {
			kept = append(kept, n)
		}
	}
	return kept
}

// verify compares a node with /dev. It returns the id and message of a finding, or "" if nothing is wrong. The node stays
// unverified if /dev cannot be seen, as in a container that mounts sysfs only, or if this user may not read it.
func (s *scan) verify(n *Node) (id finding.ID, message string) {
	if !s.seesDev {
		return "", ""
	}
	st, err := s.tree.Lstat(n.Path)
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", ""
	case err != nil:
		return finding.NodeMissing, n.Path + " is not there, though the driver has made it"
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return finding.NodeMismatch, fmt.Sprintf("%s is %s, not a character device", n.Path, cmp.Or(host.FileKind(st.Mode), "a regular file"))
	case n.Major == 0 && n.Minor == 0: // from a path rule: sysfs has no numbers to compare with
		n.Major, n.Minor = major, minor
	case major != n.Major || minor != n.Minor:
		return finding.NodeMismatch, fmt.Sprintf("%s is device %d:%d, but the LPU is %d:%d", n.Path, major, minor, n.Major, n.Minor)
	}
	n.Verified = true
	return "", ""
}
