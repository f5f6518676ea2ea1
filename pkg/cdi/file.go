package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// DefaultSpecDir is where the spec is written: of the directories that runtimes read, the
// one that is empty after boot, so that no spec outlives the devices that it describes.
const DefaultSpecDir = "/var/run/cdi"

// Conflict says that another file already defines devices of ours. Two such files in one
// directory make a runtime refuse these devices.
type Conflict struct {
	File    string
	Devices []string // names without the kind
	LeftOut []string // those of them that [File.Writable] leaves out

	kind string
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("%s: already defines %s=%s", c.File, c.kind, some(c.Devices))
}

// File is where the spec of one kind lies.
type File struct {
	Path string    // <spec dir>/<vendor>-<class>.json, the name the CDI library would give it
	Root host.Root // of the machine that the spec is for
	kind string
	dir  string // below the root, as it was named
}

// Locate finds the file for a kind in a spec directory under root. Links on the way stay
// within the root.
func Locate(root, specDir, kind string) (File, error) {
	if err := ValidateKind(kind); err != nil {
		return File{}, err
	}
	dir, err := host.Root(root).Resolve(specDir)
	if err != nil {
		return File{}, err
	}
	return File{Path: filepath.Join(dir, fileName(kind)+".json"), Root: host.Root(root), kind: kind, dir: specDir}, nil
}

// fileName is the name that the CDI library gives the file of a kind, without its ending.
func fileName(kind string) string { return strings.ReplaceAll(kind, "/", "-") }

// Read returns the bytes of the file; nil, without an error, if there is none.
func (f File) Read() ([]byte, error) {
	if err := wholefile.Refuse(f.Path); err != nil {
		return nil, err
	}
	data, err := wholefile.Read(f.Path, SpecMax)
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

// others are the specs in other files of the directory, as far as they can be read. The
// error is that the directory cannot be read, or that there is a shortage.
func (f File) others() (others []*document, err error) {
	files, err := specFiles(filepath.Dir(f.Path), ".json", ".yaml")
	for _, path := range files {
		data, err := wholefile.Read(path, SpecMax)
		if host.IsShortage(err) {
			return nil, err
		}
		if err != nil || path == f.Path {
			continue
		}
		if spec, err := parseAny(data); err == nil { // else no runtime takes it either
			others = append(others, &document{path: path, spec: spec})
		}
	}
	return others, err
}

// specFiles are the files in a directory with these endings, sorted. Runtimes read .json
// and .yaml.
func specFiles(dir string, endings ...string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if slices.Contains(endings, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

// Writable is what can be written of a spec of ours. While another file in the directory
// defines a device too, the device is left out unless our file has it already: then no
// new conflict comes about, and no device of ours stays as it was. The error is a
// *Conflict if there is one. Any other error says that the directory cannot be read. The
// spec is nil if nothing is left of it.
func (f File) Writable(spec *specs.Spec) (*specs.Spec, error) {
	conflict, err := f.conflict(spec)
	if conflict == nil || err != nil {
		return spec, err
	}
	data, err := f.Read()
	if host.IsShortage(err) {
		return nil, err
	}
	has := Devices(data) // a file that cannot be read for another reason cannot be written either
	rest := *spec
	conflict.LeftOut = slices.DeleteFunc(slices.Clone(conflict.Devices), func(name string) bool {
		return slices.ContainsFunc(has, sameName(name))
	})
	rest.Devices = slices.DeleteFunc(slices.Clone(spec.Devices), func(d specs.Device) bool {
		return slices.Contains(conflict.LeftOut, d.Name)
	})
	if len(rest.Devices) == 0 {
		return nil, conflict
	}
	return &rest, conflict
}

// conflict is with the other files in the directory; nil if there is none.
func (f File) conflict(spec *specs.Spec) (all *Conflict, err error) {
	others, err := f.others()
	for _, other := range others {
		shared := sharedNames(other.spec, spec)
		switch {
		case other.spec.Kind != f.kind || len(shared) == 0:
		case all == nil:
			all = &Conflict{File: other.path, Devices: shared, kind: f.kind}
		default:
			all.Devices = append(all.Devices, shared...)
		}
	}
	return all, err
}

// Precedes reports whether the file is there and was written before the device node of
// this path, under the root, was made or changed.
func (f File) Precedes(node string) bool {
	var written, made unix.Stat_t
	real, err := f.Root.Resolve(node)
	return err == nil && host.Stat(f.Path, &written) == nil && host.Stat(real, &made) == nil && made.Ctim.Nano() > written.Ctim.Nano()
}

// Clash is a *Conflict if another file than path, in its directory, defines one of the
// devices of a spec.
func Clash(path string, spec *specs.Spec) error {
	conflict, err := File{Path: path, kind: spec.Kind}.conflict(spec)
	if conflict != nil {
		return conflict
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sharedNames are the devices of a spec that another one defines too.
func sharedNames(spec, other *specs.Spec) (names []string) {
	for _, d := range spec.Devices {
		if slices.ContainsFunc(other.Devices, sameName(d.Name)) {
			names = append(names, d.Name)
		}
	}
	return names
}

// OldKinds finds specs of other kinds in the directory that have devices for the LPUs of
// this one: after a change of the kind the file of the former kind stays, and no program
// renews it.
func (f File) OldKinds(spec *specs.Spec) (findings finding.List) {
	others, _ := f.others() // a directory that cannot be read is an error of Write
	for _, other := range others {
		other.checkOldKind(spec)
		findings = append(findings, other.findings...)
	}
	return findings
}

// checkOldKind finds that a spec of another kind than ours has a device of ours by PCI
// address, a name that no other vendor gives.
func (d *document) checkOldKind(ours *specs.Spec) {
	isAddress := func(name string) bool { return strings.HasPrefix(name, addressPrefix) }
	if d.spec.Kind != ours.Kind && slices.ContainsFunc(sharedNames(d.spec, ours), isAddress) {
		message := fmt.Sprintf("it has devices of kind %s for LPUs of this node, which are of kind %s now: it is not renewed",
			d.spec.Kind, ours.Kind)
		d.add(finding.OldKind, "", message, "if nothing asks for "+d.spec.Kind+" any more: rm "+d.path)
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
