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

// classDevices are the devices of one class, by the PCI function they belong to.
type classDevices map[Address][]classDevice

// classDevice is a directory such as .../0000:43:00.1/drm/renderD130.
type classDevice struct{ name, path string }

// subsystem is the class a node rule looks in; "" for a rule that looks in none.
func (r nodeRule) subsystem() string {
	switch r.kind {
	case "class":
		return r.argument
	case "drm":
		return "drm"
	}
	return ""
}

// accepts tells whether the class device is one that the rule means: DRM has a card node beside the
// render node of a device.
func (r nodeRule) accepts(d classDevice) bool {
	return r.kind != "drm" || strings.HasPrefix(d.name, "renderD")
}

// listClass lists a directory of sys/class. Its entries are links to the class devices, whose path says which
// PCI function they belong to. A class that is not there has no devices.
func (s *scan) listClass(class string) (classDevices, error) {
	dir, err := s.tree.Dir(class)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	devices := classDevices{}
	for _, name := range names {
		real, err := dir.Follow(class, name)
		if err != nil {
			continue // not a link: no class device
		}
		if a, ok := functionOf(real); ok {
			devices[a] = append(devices[a], classDevice{name, real})
		}
	}
	return devices, nil
}

// functionOf is the PCI function nearest above a device path.
func functionOf(devicePath string) (Address, bool) {
	for p := path.Dir(devicePath); len(p) > 1; p = path.Dir(p) {
		if a, err := ParseAddress(path.Base(p)); err == nil {
			return a, true
		}
	}
	return Address{}, false
}

// nodes applies the rules in order; the first that yields a node wins. That a rule yields more than one
// is an error, because any choice might be the wrong device.
func (s *scan) nodes(rules []nodeRule, lpu *LPU) ([]Node, error) {
	for _, rule := range rules {
		if rule.kind == "path" {
			return []Node{{Path: fillTemplate(rule.argument, lpu)}}, nil
		}
		var found []Node
		for _, d := range s.classes[rule.subsystem()][lpu.Address] {
			if !rule.accepts(d) {
				continue
			}
			n, err := s.classNode(d)
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
				len(found), rule.subsystem(), found[0].Path, found[1].Path)
		}
		if len(found) == 1 {
			return found, nil
		}
	}
	return nil, nil
}

func fillTemplate(template string, lpu *LPU) string {
	filled := strings.NewReplacer("{index}", strconv.Itoa(lpu.Index), "{address}", lpu.Address.String()).Replace(template)
	return path.Clean(filled)
}

// classNode reads which node a class device has: numbers from dev ("226:130"), name from DEVNAME in
// uevent (drivers/base/core.c, dev_uevent), which may differ from the directory's name.
func (s *scan) classNode(d classDevice) (Node, error) {
	dir, err := s.tree.Dir(d.path)
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
	name := d.name
	for line := range strings.SplitSeq(uevent, "\n") {
		if value, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			name = value
		}
	}
	if !isNodeName(name) {
		return Node{}, dir.Fault("uevent", fmt.Errorf("%.40q is not a name in /dev", name))
	}
	return Node{Path: "/dev/" + name, Major: major, Minor: minor}, nil
}

func isNodeName(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if !host.IsPlainName(element) {
			return false
		}
	}
	return true
}

// parseDev reads a dev attribute. The kernel has 12 bits of major and 20 of minor (include/linux/kdev_t.h).
func parseDev(text string) (major, minor uint32, ok bool) {
	a, b, ok := strings.Cut(text, ":")
	ma, err1 := strconv.ParseUint(a, 10, 12)
	mi, err2 := strconv.ParseUint(b, 10, 20)
	return uint32(ma), uint32(mi), ok && err1 == nil && err2 == nil
}

// verified compares nodes with what lies in /dev under the root. One that is not there, or is another device,
// makes the LPU unusable and is dropped: nobody may be handed it. Where /dev cannot be seen, as in a container
// that mounts sysfs only, nodes stay unverified.
func (s *scan) verified(lpu *LPU, nodes []Node) []Node {
	kept := []Node{}
	for _, n := range nodes {
		if s.seesDev {
			st, err := s.tree.Lstat(n.Path)
			if n.fromTemplate() && err == nil {
				n.Major, n.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
			}
			if id, message := judgeNode(n, st, err); id != "" {
				lpu.reason(id, message, "")
				continue
			}
			n.Verified = err == nil
		}
		kept = append(kept, n)
	}
	return kept
}

// fromTemplate tells a node of a path rule, for which sysfs has no numbers to compare with.
func (n Node) fromTemplate() bool { return n.Major == 0 && n.Minor == 0 }

// judgeNode says what is wrong with a node, given what lstat says of its path; nothing is if id is "".
func judgeNode(n Node, st unix.Stat_t, err error) (id finding.ID, message string) {
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", "" // cannot be seen by this user: not verified, not wrong
	case err != nil:
		return finding.NodeMissing, n.Path + " is not there, though the driver has made it"
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return finding.NodeMismatch, fmt.Sprintf("%s is %s, not a character device", n.Path, cmp.Or(host.FileKind(st.Mode), "a regular file"))
	case major != n.Major || minor != n.Minor:
		return finding.NodeMismatch, fmt.Sprintf("%s is device %d:%d, but the LPU is %d:%d", n.Path, major, minor, n.Major, n.Minor)
	}
	return "", ""
}
