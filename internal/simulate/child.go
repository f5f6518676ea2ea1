package simulate

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

// child is a device below a PCI function: a class device, which has a device node, or a
// platform device that the function's driver makes.
type child struct {
	class      string  // subsystem in sys/class; "": a platform device; hwmon: has no node
	name       string  // "renderD130", "rom.u.16"
	numbers    Numbers // of the node, as sysfs has them
	stale      bool    // the node in dev has other numbers
	missing    bool    // dev has no such node
	attributes string  // lines NAME=TEXT
}

// classDevice is a class device whose driver names it by a prefix and a number.
func classDevice(class, prefix string, number, major, minor int) *child {
	return &child{class: class, name: fmt.Sprint(prefix, number), numbers: Numbers{uint32(major), uint32(minor)}}
}

func platformDevice(name string, instance int, attributes string) *child {
	return &child{name: fmt.Sprint(name, ".", instance), attributes: attributes}
}

// hwmon is the class of sensor chips.
const hwmon = "hwmon"

func (c *child) hasNode() bool { return c.class != "" && c.class != hwmon }

// kind is the class or, of a platform device, the name without its number.
func (c *child) kind() string { return cmp.Or(c.class, strings.TrimSuffix(c.name, path.Ext(c.name))) }

// node is the path of the device node below dev.
func (c *child) node() string {
	if c.class == "drm" {
		return "dri/" + c.name
	}
	return c.name
}

// swap gives each of two devices the name and the numbers of the other.
func (c *child) swap(other *child) {
	c.name, other.name = other.name, c.name
	c.numbers, other.numbers = other.numbers, c.numbers
}

func (c *child) write(t *tree, function string) {
	dir := path.Join(function, c.class, c.name)
	t.attributes(dir, c.attributes)
	if c.class == "" {
		t.busDevice(dir, "platform", c.kind(), "MODALIAS=platform:"+c.kind())
		return
	}
	if !c.hasNode() {
		t.classDevice(function, c.class, c.name, "")
		return
	}
	uevent := fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s", c.numbers.Major, c.numbers.Minor, c.node())
	if c.class == "drm" {
		uevent += "\nDEVTYPE=drm_minor"
	}
	t.classDevice(function, c.class, c.name, uevent)
	t.text(dir+"/dev", c.numbers.String())
	t.link(c.byNumbers(), dir)
	node := c.numbers
	if c.stale {
		node.Minor++ // as when the kernel gave the device another minor and the old node stayed
	}
	if !c.missing {
		t.device("dev/"+c.node(), node)
	}
}

// byNumbers is the link by which the kernel finds the class device that has these numbers
// (drivers/base/core.c, device_create_sys_dev_entry).
func (c *child) byNumbers() string { return "sys/dev/char/" + c.numbers.String() }

// remove takes the device away, its node first, as the kernel does.
func (c *child) remove(t *tree, function string) {
	links := []string{"sys/bus/platform/devices/" + c.name, "sys/bus/platform/drivers/" + c.kind() + "/" + c.name}
	dir := path.Join(function, c.name)
	if c.class != "" {
		links = []string{"sys/class/" + c.class + "/" + c.name}
		if c.hasNode() {
			links = append(links, "dev/"+c.node(), c.byNumbers())
		}
		// With all devices of the class, which belong to one driver and go together.
		dir = path.Join(function, c.class)
	}
	t.remove(append(links, dir)...)
}

// drmMajor is the major number of DRM devices (include/drm/drm_file.h, DRM_MAJOR).
const drmMajor = 226

// drmDevices are the two class devices of the nth DRM device of a machine: the render
// node, which comes first here, and the card. Beyond 64 devices their minors share one
// range (drivers/gpu/drm/drm_drv.c).
func drmDevices(n int) []*child {
	render, primary := 128+n, n
	if n >= 64 {
		render = 192 + 2*(n-64)
		primary = render + 1
	}
	return []*child{classDevice("drm", "renderD", render, drmMajor, render), classDevice("drm", "card", primary, drmMajor, primary)}
}
