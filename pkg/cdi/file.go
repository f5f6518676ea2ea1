package cdi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// DefaultSpecDir is where the spec is written: of the directories that runtimes read, the one that is
// empty after boot, so that no spec outlives the devices that it describes.
const DefaultSpecDir = "/var/run/cdi"

// lockTimeout is how long Write and Remove wait for another lpuctl; one takes milliseconds.
const lockTimeout = 10 * time.Second

// Conflict says that another file already defines one of our devices. Two such files in one directory make
// a runtime refuse the device.
type Conflict struct {
	File   string
	Device string // qualified name
}

func (c *Conflict) Error() string { return fmt.Sprintf("%s: already defines %s", c.File, c.Device) }

// File is where the spec of one kind lies.
type File struct {
	Path string // <spec dir>/<vendor>-<class>.json, the name the CDI library would give it
	kind string
}

// Locate finds the file for a kind in a spec directory under root. Links on the way stay within the root.
func Locate(root, specDir, kind string) (File, error) {
	if err := ValidateKind(kind); err != nil {
		return File{}, err
	}
	dir, err := host.Root(root).Resolve(specDir)
	if err != nil {
		return File{}, err
	}
	return File{Path: filepath.Join(dir, fileName(kind)+".json"), kind: kind}, nil
}

// fileName is the name that the CDI library gives the file of a kind, without its ending.
func fileName(kind string) string { return strings.ReplaceAll(kind, "/", "-") }

// Read returns the bytes of the file; nil, without an error, if there is none.
func (f File) Read() ([]byte, error) {
	if err := wholefile.Refuse(f.Path); err != nil {
		return nil, err
	}
	data, err := wholefile.Read(f.Path, specMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// parse reads a spec's bytes, whether or not a runtime would take what they say.
func parse(data []byte) (*specs.Spec, error) {
	spec, err := cdi.ParseSpec(data)
	if err == nil && spec == nil {
		err = errors.New("the spec is empty")
	}
	return spec, err
}

// Lacks returns the AddressName of each LPU with nodes that the file does not resolve to just these nodes. The error says
// that the file cannot be read or that no runtime would take it.
func (f File) Lacks(inv *discovery.Inventory) ([]string, error) {
	var have map[string][]string
	data, err := f.Read()
	if err == nil && data != nil {
		var spec *specs.Spec
		if spec, err = parse(data); err == nil && spec.Kind == f.kind {
			have = nodesByName(spec)
		}
	}
	lacking := []string{}
	for _, l := range inv.LPUs {
		var want []string
		for _, n := range l.Nodes {
			want = append(want, n.Path)
		}
		if name := AddressName(l.Address); len(want) > 0 && !slices.Equal(have[name], want) {
			lacking = append(lacking, name)
		}
	}
	return lacking, err
}

// Write puts the spec in place: written beside, synced, renamed, read back. It renames even when the bytes
// are the same as before, because that is what makes runtimes forget device numbers they remember. A reader
// sees the old file or the new one, whenever this process dies. It refuses (Conflict) while another
// file in the directory defines one of the spec's devices.
func (f File) Write(ctx context.Context, spec *specs.Spec) error {
	data, err := Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.refuseConflict(spec); err != nil {
		return err
	}
	f.clearLeftovers()
	if err := wholefile.Replace(f.Path, data); err != nil {
		return err
	}
	return f.readBack(data)
}

// Remove takes the file away and tells whether there was one. It touches no other file.
func (f File) Remove(ctx context.Context) (removed bool, err error) {
	unlock, err := f.lock(ctx)
	if err == nil {
		defer unlock()
		if err = wholefile.Refuse(f.Path); err == nil {
			f.clearLeftovers()
			err = os.Remove(f.Path)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // the file, or the directory
		return false, nil
	}
	return err == nil, err
}

// lock keeps other lpuctl processes out of the directory until the func it returns is called.
func (f File) lock(ctx context.Context) (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(f.Path), "."+strings.TrimSuffix(filepath.Base(f.Path), ".json")+".lock")
	lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { lock.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			err = &fs.PathError{Op: "lock", Path: name, Err: err}
		case ctx.Err() != nil:
			err = fmt.Errorf("%s: another lpuctl holds the lock: %w", name, ctx.Err())
		default:
			time.Sleep(5 * time.Millisecond)
			continue
		}
		lock.Close()
		return nil, err
	}
}

// others are the specs in other files of the directory, as far as they can be read.
func (f File) others() (others []*document, err error) {
	files, err := specFiles(filepath.Dir(f.Path), ".json", ".yaml")
	for _, path := range files {
		data, err := wholefile.Read(path, specMax)
		if err != nil || path == f.Path {
			continue
		}
		if spec, err := parse(data); err == nil { // else no runtime takes it either
			others = append(others, &document{path: path, spec: spec})
		}
	}
	return others, err
}

// specFiles are the files in a directory with these endings, sorted. Runtimes read .json and .yaml.
func specFiles(dir string, endings ...string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if slices.Contains(endings, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

func (f File) refuseConflict(spec *specs.Spec) error {
	others, err := f.others()
	for _, other := range others {
		if shared := sharedNames(other.spec, spec); other.spec.Kind == f.kind && len(shared) > 0 {
			return &Conflict{File: other.path, Device: f.kind + "=" + shared[0]}
		}
	}
	return err
}

// sharedNames are the devices of a spec that another one defines too.
func sharedNames(spec, other *specs.Spec) (names []string) {
	for _, d := range spec.Devices {
		if slices.ContainsFunc(other.Devices, func(o specs.Device) bool { return o.Name == d.Name }) {
			names = append(names, d.Name)
		}
	}
	return names
}

// OldKinds finds specs of other kinds in the directory that have devices for the LPUs of this one: after a change of the kind
// the file of the former kind stays, and nobody renews it.
func (f File) OldKinds(spec *specs.Spec) (findings finding.List) {
	others, _ := f.others() // a directory that cannot be read is an error of Write
	for _, other := range others {
		other.checkOldKind(spec)
		findings = append(findings, other.findings...)
	}
	return findings
}

// checkOldKind finds that a spec of another kind than ours has a device of ours by PCI address, a name that no other vendor gives.
func (d *document) checkOldKind(ours *specs.Spec) {
	isAddress := func(name string) bool { return strings.HasPrefix(name, addressPrefix) }
	if d.spec.Kind != ours.Kind && slices.ContainsFunc(sharedNames(d.spec, ours), isAddress) {
		message := fmt.Sprintf("it has devices of kind %s for LPUs of this node, which are of kind %s now: it is not renewed",
			d.spec.Kind, ours.Kind)
		d.add(finding.OldKind, "", message, "if nothing asks for "+d.spec.Kind+" any more: rm "+d.path)
	}
}

// clearLeftovers removes what a killed Write left behind; the lock says that none is under way.
func (f File) clearLeftovers() {
	dir, base := filepath.Split(f.Path)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+base) {
			_ = os.Remove(dir + e.Name())
		}
	}
}

func (f File) readBack(data []byte) error {
	got, err := os.ReadFile(f.Path)
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("%s: reads back differently than written", f.Path)
	}
	if err == nil {
		_, err = cdi.ReadSpec(f.Path, 0)
	}
	return err
}

// Devices are those of a spec's bytes; none if no runtime would take them.
func Devices(data []byte) []specs.Device {
	if spec, err := parse(data); err == nil {
		return spec.Devices
	}
	return nil
}
