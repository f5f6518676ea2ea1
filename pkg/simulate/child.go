package simulate

import (
	"fmt"
	"path"
)

// child is a device below a PCI function: a class device, or a platform device that the function's driver makes.
type child struct {
	path       string // below the function: "drm/renderD130", "rom.u.16"
	class      string // subsystem in sys/class; "": a platform device
	node       *node  // of a class device
	attributes map[string]string
}

// node is a character device in dev.
type node struct {
	name    string  // below dev
	kind    string  // DEVTYPE in the uevent
	numbers Numbers // as sysfs has them
	stale   bool    // the one in dev has other numbers
	missing bool    // dev has none
}

func classDevice(class, name string, n *node, attributes map[string]string) *child {
	return &child{class + "/" + name, class, n, attributes}
}

func platformDevice(name string, instance int, attributes map[string]string) *child {
	return &child{path: fmt.Sprint(name, ".", instance), attributes: attributes}
}

func (c *child) write(t *tree, function string) {
	dir, name := function+"/"+c.path, path.Base(c.path)
	if c.class == "" {
		driver := name[:len(name)-len(path.Ext(name))]
		t.text(dir+"/uevent", "DRIVER="+driver+"\nMODALIAS=platform:"+driver)
		t.link(dir+"/driver", "sys/bus/platform/drivers/"+driver)
		t.link("sys/bus/platform/drivers/"+driver+"/"+name, dir)
		t.link(dir+"/subsystem", "sys/bus/platform")
		t.link("sys/bus/platform/devices/"+name, dir)
	} else {
		t.text(dir+"/uevent", c.node.uevent())
		t.text(dir+"/dev", fmt.Sprintf("%d:%d", c.node.numbers.Major, c.node.numbers.Minor))
		t.link(dir+"/device", function)
		t.link(dir+"/subsystem", "sys/class/"+c.class)
		t.link("sys/class/"+c.class+"/"+name, dir)
	}
	for attribute, text := range c.attributes {
		t.text(dir+"/"+attribute, text)
	}
}

func (n *node) uevent() string {
	text := fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s", n.numbers.Major, n.numbers.Minor, n.name)
	if n.kind != "" {
		text += "\nDEVTYPE=" + n.kind
	}
	return text
}

// write makes the node in dev.
func (n *node) write(t *tree) {
	numbers := n.numbers
	if n.stale {
		numbers.Minor++ // as when the minors moved and the node was left over
	}
	if !n.missing {
		t.device("dev/"+n.name, numbers)
	}
}

// drmDevices are the two class devices of the nth DRM device of a machine: the render node, which comes
// first here, and the card. Beyond 64 devices their minors share one range (drivers/gpu/drm/drm_drv.c).
func drmDevices(n int) []*child {
	render, card := 128+n, n
	if n >= 64 {
		render = 192 + 2*(n-64)
		card = render + 1
	}
	return []*child{drmMinor("renderD", render), drmMinor("card", card)}
}

func drmMinor(prefix string, minor int) *child {
	name := fmt.Sprint(prefix, minor)
	return classDevice("drm", name, &node{name: "dri/" + name, kind: "drm_minor", numbers: Numbers{226, uint32(minor)}}, nil)
}
