package simulate

import (
	"fmt"
	"path"
	"strings"
)

// child is a device below a PCI function: a class device, which has a device node, or a platform device that the
// function's driver makes.
type child struct {
	class      string  // subsystem in sys/class; "": a platform device
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

// node is the path of the device node below dev.
func (c *child) node() string {
	if c.class == "drm" {
		return "dri/" + c.name
	}
	return c.name
}

func (c *child) write(t *tree, function string) {
	dir := path.Join(function, c.class, c.name)
	t.attributes(dir, c.attributes)
	if c.class == "" {
		driver := strings.TrimSuffix(c.name, path.Ext(c.name))
		t.busDevice(dir, "platform", driver, "MODALIAS=platform:"+driver)
		return
	}
	uevent := fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s", c.numbers.Major, c.numbers.Minor, c.node())
	if c.class == "drm" {
		uevent += "\nDEVTYPE=drm_minor"
	}
	t.classDevice(function, c.class, c.name, uevent)
	t.text(dir+"/dev", fmt.Sprintf("%d:%d", c.numbers.Major, c.numbers.Minor))
	if c.stale {
		c.numbers.Minor++ // as when the kernel gave the device another minor and the old node stayed
	}
	if !c.missing {
		t.device("dev/"+c.node(), c.numbers)
	}
}

// drmDevices are the two class devices of the nth DRM device of a machine: the render node, which comes
// first here, and the card. Beyond 64 devices their minors share one range (drivers/gpu/drm/drm_drv.c).
func drmDevices(n int) []*child {
	render, primary := 128+n, n
	if n >= 64 {
		render = 192 + 2*(n-64)
		primary = render + 1
	}
	return []*child{classDevice("drm", "renderD", render, 226, render), classDevice("drm", "card", primary, 226, primary)}
}
