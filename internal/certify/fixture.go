package certify

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Fixture is what a scan has read of the LPUs, their cards and the ports above them: a
// tree of sysfs that a scan reads as it reads the node, without serial numbers.
type Fixture struct {
	files map[string]string // by path below the root, with links followed
	links map[string]string // their texts, by path
	// kept are the directories of the PCI functions.
	kept []string
}

// NewFixture picks from a record what belongs to the LPUs of an inventory. Where nothing
// is known of a file but that the scan has read it, it is left out.
func NewFixture(root host.Root, inv *discovery.Inventory, record *Record) (*Fixture, error) {
	t, err := root.Open()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	x := &Fixture{files: map[string]string{}, links: map[string]string{}}
	drivers := x.keep(t, inv)
	reads := record.reads()
	for _, p := range slices.Sorted(maps.Keys(reads)) {
		real, links := follow(t, p)
		if !x.wants(real, drivers) {
			continue
		}
		if target, err := linkAt(t, real); err == nil {
			if x.leadsHome(real, target, drivers) {
				x.links[real] = target
			}
		} else {
			x.files[real] = reads[p]
		}
		maps.Copy(x.links, links)
	}
	x.replaceSerials(inv)
	return x, nil
}

// keep notes the directories of the functions that belong to the LPUs, with the links to
// them, and returns the drivers of the LPUs.
func (x *Fixture) keep(t *host.Tree, inv *discovery.Inventory) (drivers []string) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if l.Driver != "" {
			drivers = append(drivers, l.Driver)
		}
		functions := append([]pci.Address{l.Address}, l.Reading.Ports...)
		if l.Management != nil {
			functions = append(functions, l.Management.Address)
		}
		for _, a := range functions {
			if real, err := t.Follow(a.Dir()); err == nil {
				x.kept = append(x.kept, strings.TrimPrefix(real, "/"))
				if target, err := linkAt(t, a.Dir()); err == nil {
					x.links[a.Dir()] = target
				}
			}
		}
	}
	return drivers
}

// linkAt returns the text of a link. The error is that there is none.
func linkAt(t *host.Tree, p string) (string, error) {
	d, err := t.Dir(path.Dir(p))
	if err != nil {
		return "", err
	}
	defer d.Close()
	return d.Link(path.Base(p))
}

// follow returns where a path leads that links are in, but for the last element, and the
// links.
func follow(t *host.Tree, p string) (real string, links map[string]string) {
	links = map[string]string{}
	elements := strings.Split(p, "/")
	for i, element := range elements {
		real = path.Join(real, element)
		if i == len(elements)-1 {
			break
		}
		if target, err := linkAt(t, real); err == nil {
			links[real] = target
			real = strings.TrimPrefix(path.Join("/", path.Dir(real), target), "/")
		}
	}
	return real, links
}

// wants reports whether a file or link belongs to an LPU: it is of one of its functions,
// of its driver, or of a class.
func (x *Fixture) wants(p string, drivers []string) bool {
	for _, d := range drivers {
		if strings.HasPrefix(p, "sys/bus/pci/drivers/"+d+"/") || p == "sys/module/"+strings.ReplaceAll(d, "-", "_")+"/version" {
			return true
		}
	}
	_, ours := x.ofFunction(p)
	return ours || strings.HasPrefix(p, "sys/class/") || strings.HasPrefix(p, discovery.CharDevices+"/")
}

// ofFunction reports whether a path is of one of the functions itself, and not of what is
// below it on the bus. rest is the path below the function.
func (x *Fixture) ofFunction(p string) (rest string, ok bool) {
	for _, dir := range x.kept {
		if rest, ok := strings.CutPrefix(p, dir+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			if _, isFunction := pci.Find(first); !isFunction && !strings.HasPrefix(first, "pci") {
				return rest, true
			}
		}
	}
	return "", false
}

// leadsHome reports whether a link of a class, or of the numbers of devices, leads to a
// function of the fixture. Others name what else is in the machine.
func (x *Fixture) leadsHome(p, target string, drivers []string) bool {
	if _, ours := x.ofFunction(p); ours {
		base := path.Base(p)
		return base != "driver" || slices.Contains(append(drivers, "xclmgmt", "pcieport"), path.Base(target))
	}
	real := strings.TrimPrefix(path.Join("/", path.Dir(p), target), "/")
	_, ours := x.ofFunction(real)
	return ours || strings.HasPrefix(p, "sys/bus/pci/drivers/")
}

// replaceSerials replaces the serial number of each LPU by one that no card has.
func (x *Fixture) replaceSerials(inv *discovery.Inventory) {
	numbers := map[string]string{}
	for _, p := range slices.Sorted(maps.Keys(x.files)) {
		if serial := strings.TrimSpace(x.files[p]); isSerial(p) && serial != "" && numbers[serial] == "" {
			numbers[serial] = fmt.Sprintf("XFL1FIX%04dA", len(numbers))
		}
	}
	for i := range inv.LPUs {
		if serial := inv.LPUs[i].Serial; serial != "" && numbers[serial] == "" {
			numbers[serial] = fmt.Sprintf("XFL1FIX%04dA", len(numbers))
		}
	}
	for p, text := range x.files {
		for serial, other := range numbers {
			text = strings.ReplaceAll(text, serial, other)
		}
		x.files[p] = text
	}
}

// isSerial reports whether an attribute is a serial number.
func isSerial(p string) bool {
	return slices.Contains([]string{"serial", "serial_num", "serial_number"}, path.Base(p))
}

// Contents returns what is in the fixture: each kind of file once, with how often it is
// there.
func (x *Fixture) Contents() (kinds []string, files int) {
	count := map[string]int{}
	for p := range x.files {
		kind := x.kindOf(p)
		if isSerial(p) {
			kind += " (replaced)"
		}
		count[kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", count[kind], kind))
	}
	return kinds, len(x.files)
}

// kindOf returns a path without what differs from card to card.
func (x *Fixture) kindOf(p string) string {
	if rest, ours := x.ofFunction(p); ours {
		p = rest
	}
	return regexp.MustCompile(`\d+(/|$)`).ReplaceAllString(p, "N$1")
}

// Archive returns the fixture as a tar archive that is compressed with gzip. The same
// fixture gives the same bytes.
func (x *Fixture) Archive() ([]byte, error) {
	var buffer bytes.Buffer
	compressed := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(compressed)
	all := map[string]*tar.Header{}
	for p := range x.files {
		all[p] = &tar.Header{Typeflag: tar.TypeReg, Name: p, Size: int64(len(x.files[p])), Mode: 0o644}
	}
	for p, target := range x.links {
		all[p] = &tar.Header{Typeflag: tar.TypeSymlink, Name: p, Linkname: target, Mode: 0o777}
	}
	for p := range maps.Clone(all) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			all[dir+"/"] = &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if err := archive.WriteHeader(all[p]); err != nil {
			return nil, err
		}
		if _, err := archive.Write([]byte(x.files[p])); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	err := compressed.Close()
	return buffer.Bytes(), err
}

// Write writes the archive to a file that is not there yet.
func (x *Fixture) Write(file string) error {
	data, err := x.Archive()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
