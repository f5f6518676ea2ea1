package cdi

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Order is the order in which one container runtime reads spec directories.
type Order struct {
	Runtime string   // "containerd"
	Library string   // release of the CDI library that it is built with; "": it is not known
	Dirs    []string // under the root, the last of which has the highest priority
}

// dirsOf are the directories that are read in some orders.
func dirsOf(orders []Order) (dirs []string) {
	for _, order := range orders {
		dirs = append(dirs, order.Dirs...)
	}
	return dirs
}

// library is the release of the CDI library of the target; "": it knows no CDI.
func (t Target) library() string { return cmp.Or(t.Library, t.Newest) }

// reader is a release of the CDI library that reads the spec directories in one order.
type reader struct {
	Order

	// sure: the machine has it; else it may be there, because the release is not known.
	sure  bool
	paths []string         // of the directories, as they lead to
	by    map[string]place // what serves a device, by qualified name
	// torn has two files in one directory that define a device, so that the library has it
	// no more.
	torn map[string][2]*document
}

// place is a device in a file, as a release of the library reads the file.
type place struct {
	d    *document
	spec *specs.Spec
	i    int
}

// versions are what the releases of the library make of the file: two if they read it
// differently, none if they all refuse it.
func (d *document) versions() []*specs.Spec {
	all := slices.Compact([]*specs.Spec{d.spec, d.old})
	return slices.DeleteFunc(all, func(spec *specs.Spec) bool { return spec == nil })
}

// takenBy returns what a release of the library makes of the file; nil if it refuses the
// file.
func (d *document) takenBy(release string) *specs.Spec {
	spec := d.spec
	if isOlder(release, newLibrary) {
		spec = d.old
	}
	if spec == nil || isOlder(release, spec.Version) {
		return nil
	}
	return spec
}

// resolve finds out which file serves each device, as the cache of the CDI library does:
// of two directories the last one counts, and a device that two files in one directory
// define is gone, even if a third file elsewhere defines it.
func (r *reader) resolve(dirs []specDir, contents map[string][]*document) {
	r.by, r.torn = map[string]place{}, map[string][2]*document{}
	for _, dir := range dirs {
		r.paths = append(r.paths, dir.path)
		if dir.isLink() && isOlder(r.Library, newLibrary) {
			continue // see checkDirs
		}
		here := map[string]bool{}
		for _, d := range contents[dir.path] {
			spec := d.takenBy(r.Library)
			if spec == nil {
				continue
			}
			for i, device := range spec.Devices {
				name := spec.Kind + "=" + device.Name
				if here[name] {
					r.torn[name] = [2]*document{r.by[name].d, d}
					continue
				}
				here[name] = true
				r.by[name] = place{d, spec, i}
			}
		}
	}
	for name := range r.torn {
		delete(r.by, name)
	}
}

// reading is what the files in spec directories mean to the runtimes of the machine.
type reading struct {
	dirs      []specDir // each once, those of lower priority first
	documents []*document
	unread    []string // files beside them that no runtime reads
	readers   []*reader
}

// orders are those of the runtimes of the machine; and that of the directories that are
// checked, where no runtime reads what is ours.
func (v *Validator) orders(dirs []string) []Order {
	real, err := resolveDirs(v.Root, dirsOf(v.Orders))
	if err == nil && slices.ContainsFunc(real, func(dir string) bool { return same(dir, filepath.Dir(v.Own)) }) {
		return v.Orders
	}
	known := slices.DeleteFunc(slices.Clone(v.Orders), func(order Order) bool { return order.Runtime == "" })
	return append(known, Order{Dirs: dirs})
}

// readBelow is readAll for directories under the root, and those that the runtimes of the
// machine read.
func (v *Validator) readBelow(dirs []string) (*reading, error) {
	orders := v.orders(dirs)
	all, err := v.find(slices.Concat(dirs, dirsOf(orders)))
	if err != nil {
		return nil, err
	}
	return v.readAll(all, orders)
}

// readAll reads the files in directories, and finds out what they mean to those who read
// the directories in some orders.
func (v *Validator) readAll(dirs []specDir, orders []Order) (*reading, error) {
	r := &reading{}
	contents, err := v.readContents(r, dirs)
	if err != nil {
		return nil, err
	}
	for _, order := range orders {
		read := dirs
		if order.Dirs != nil {
			if read, err = v.find(order.Dirs); err != nil {
				return nil, err
			}
		}
		for _, library := range v.libraries(order) {
			next := &reader{Order: order, sure: library == newLibrary || library == order.Library || len(v.Targets) > 0}
			next.Library = library
			next.resolve(read, contents)
			if i := slices.IndexFunc(r.readers, next.likewise); i >= 0 {
				r.readers[i].sure = r.readers[i].sure || next.sure
				continue
			}
			r.readers = append(r.readers, next)
		}
	}
	return r, nil
}

// readContents reads the files in directories, and returns those that may be specs by
// directory.
func (v *Validator) readContents(r *reading, dirs []specDir) (map[string][]*document, error) {
	contents := map[string][]*document{}
	for _, dir := range dirs {
		if i := slices.IndexFunc(r.dirs, func(before specDir) bool { return same(before.path, dir.path) }); i >= 0 {
			if r.dirs[i].isLink() && !dir.isLink() {
				r.dirs[i].typed = dir.typed // every runtime finds the specs by this one
			}
			contents[dir.path] = contents[r.dirs[i].path]
			continue
		}
		r.dirs = append(r.dirs, dir)
		files, err := specFiles(dir.path, ".json", ".yaml", ".yml")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, path := range files {
			if filepath.Ext(path) == ".yml" {
				r.unread = append(r.unread, path)
				continue
			}
			d := v.read(path)
			if d.shortage != nil {
				return nil, d.shortage
			}
			if all := d.versions(); len(all) > 0 && all[0].Kind == v.Kind {
				d.renewal = v.renewalOf(path)
			}
			contents[dir.path] = append(contents[dir.path], d)
		}
		r.documents = append(r.documents, contents[dir.path]...)
	}
	return contents, nil
}

// libraries returns the releases of the library that may read the directories in an
// order, the newest first.
func (v *Validator) libraries(order Order) (list []string) {
	for _, t := range v.Targets {
		if library := t.library(); library != "" {
			list = append(list, library)
		}
	}
	switch {
	case len(list) > 0:
	case order.Library != "":
		list = []string{order.Library}
	default:
		// The releases that differ in which files they take: each one before 1.1.1 knows the
		// cdiVersions up to its own, and reads keys in any case. The cache resolves names alike
		// in all of them.
		list = []string{"0.5.4", "0.6.2", "0.7.2", "0.8.1", "1.0.1", "1.1.0", newLibrary}
	}
	slices.Reverse(list)
	return list
}

// likewise reports whether another reader of the same runtime has the same devices by the
// same files.
func (r *reader) likewise(other *reader) bool {
	return r.Runtime == other.Runtime && slices.Equal(r.Dirs, other.Dirs) && maps.Equal(r.by, other.by)
}

// given is what a container gets with a device, by its qualified name; nothing if no file
// serves it.
func (r *reader) given(name string) []given {
	if p, served := r.by[name]; served {
		return effective(p.spec, p.i)
	}
	return nil
}

// uses reports whether a file serves any device.
func (r *reader) uses(d *document) bool {
	for _, p := range r.by {
		if p.d == d {
			return r.sure
		}
	}
	return false
}

// serving returns the readers to which a device stands for its name.
func (r *reading) serving(p place) (list []*reader) {
	for _, reader := range r.readers {
		if reader.by[p.spec.Kind+"="+p.spec.Devices[p.i].Name] == p {
			list = append(list, reader)
		}
	}
	return list
}

// surely reports whether a runtime that the machine has gets a device there.
func (r *reading) surely(p place) bool {
	return slices.ContainsFunc(r.serving(p), func(reader *reader) bool { return reader.sure })
}

// orders returns the runtimes that prefer the directory of one file to that of another.
func (r *reading) orders(d, to *document) (runtimes []string) {
	for _, reader := range r.readers {
		at := func(d *document) (last int) {
			last = -1
			for i, path := range reader.paths {
				if same(path, filepath.Dir(d.path)) {
					last = i
				}
			}
			return last
		}
		if reader.sure && at(d) > at(to) && at(to) >= 0 {
			runtimes = appendNew(runtimes, cmp.Or(reader.Runtime, "runtimes"))
		}
	}
	return runtimes
}

// readAlone is the reading of one file as if every release of the library served all of
// it.
func readAlone(d *document) *reading {
	r := &reader{sure: true, by: map[string]place{}}
	for i, device := range d.spec.Devices {
		r.by[d.spec.Kind+"="+device.Name] = place{d, d.spec, i}
	}
	return &reading{documents: []*document{d}, readers: []*reader{r}}
}

// names returns the devices of a kind, without the kind, that a container can get with
// each runtime that has any of that kind, or that two files take from each other, which
// is a finding of its own. They are sorted.
func (r *reading) names(kind string) []string {
	count, has := map[string]int{}, 0
	for _, reader := range r.readers {
		// No name is in both.
		all := slices.AppendSeq(slices.Collect(maps.Keys(reader.by)), maps.Keys(reader.torn))
		all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, kind+"=") })
		if !reader.sure || len(all) == 0 {
			continue
		}
		has++
		for _, name := range all {
			count[strings.TrimPrefix(name, kind+"=")]++
		}
	}
	if has == 0 { // no runtime reads the directories, which is a finding of its own
		for _, d := range r.documents {
			if d.spec != nil && d.spec.Kind == kind {
				for _, device := range d.spec.Devices {
					count[device.Name]++
				}
			}
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n < has })
	return slices.Sorted(maps.Keys(count))
}

// whose says of which readers something is true that is not true of all; "" if it is true
// of all.
func (r *reading) whose(some []*reader) string {
	if !slices.ContainsFunc(r.readers, func(reader *reader) bool { return reader.sure && !slices.Contains(some, reader) }) {
		return ""
	}
	var texts []string
	for _, reader := range some {
		text := cmp.Or(reader.Runtime, "a runtime")
		if !reader.sure || reader.Runtime == "" {
			text += " with the CDI library " + reader.Library
		}
		texts = appendNew(texts, text)
	}
	return ", as " + strings.Join(texts, ", ") + " reads the files"
}
