package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// Collector makes a bundle of what is looked at while it watches, and of files by a list.
type Collector struct {
	root  host.Root
	names *Names

	mu     sync.Mutex
	looked map[string]bool
	listed map[string]bool
	read   map[string]reading

	bundle  *Bundle
	leftOut map[Note]int
	dirs    []string // of specs and of state: their files are taken as they are, by kind
	exact   map[string]wanted
	stay    []string // words that stay in a file that cannot be parsed
	taken   int      // bytes of files
}

// wanted is how a file comes into the bundle.
type wanted struct {
	by   redactor
	most int64 // bytes that lpuctl reads of it at most
}

// reading is what a read returned.
type reading struct {
	data []byte
	err  error
}

// NewCollector returns a collector for the machine under root. names are replaced, and some
// words are no secrets wherever they stand.
func NewCollector(root host.Root, names *Names, open ...string) *Collector {
	return &Collector{
		root: root, names: names, stay: open,
		looked: map[string]bool{}, listed: map[string]bool{}, read: map[string]reading{}, leftOut: map[Note]int{}, exact: map[string]wanted{},
		bundle: &Bundle{Entries: map[string]*Entry{}, Index: Index{Files: map[string]Status{}, LeftOut: []Note{}, Replaced: []Note{}}},
	}
}

// Watch notes what this process looks at below the root, until the returned function is
// called.
func (c *Collector) Watch() (end func()) {
	note := func(of map[string]bool) func(string) {
		return func(p string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			of[p] = true
		}
	}
	return host.Watch(&host.Witness{
		Root: c.root, Looked: note(c.looked), Listed: note(c.listed),
		Read: func(p string, data []byte, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.looked[p] = true
			if had, again := c.read[p]; again && had.err == nil && (err != nil || len(had.data) > len(data)) {
				return // part of it was read once more, or it could not be read any more
			}
			c.read[p] = reading{slices.Clone(data), err}
		},
	})
}

// omit counts what is not in the bundle.
func (c *Collector) omit(what, why string) { c.leftOut[Note{What: what, Why: why}]++ }

// Answer adds an answer as JSON text. What the kernel says of the cards is no secret in it.
func (c *Collector) Answer(name string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, r := range c.read {
		if below(p, "/sys") {
			c.names.publish(string(r.data))
		}
	}
	for p := range c.looked {
		c.names.publish(path.Base(p))
	}
	c.put(path.Join(answersDir, name), &Entry{Data: c.names.json(text)})
}

// Journal adds lines that a unit has written.
func (c *Collector) Journal(unit string, lines []string) {
	kept, omitted := journal(lines, c.names)
	for range omitted {
		c.omit("lines of "+unit, "not of lpuctl, or not known to be free of secrets")
	}
	if len(kept) > 0 {
		c.put(path.Join(journalDir, unit+".log"), &Entry{Data: []byte(strings.Join(kept, "\n") + "\n")})
	}
}

func (c *Collector) put(name string, e *Entry) { c.bundle.Entries[name] = e }

// Specs adds the spec files of a directory, of which so many bytes are read at most.
func (c *Collector) Specs(dir string, most int64) {
	c.all(dir, wanted{redactSpec, most}, ".json", ".yaml", ".yml")
}

// State adds lpuctl's own documents of a directory.
func (c *Collector) State(dir string) { c.all(dir, wanted{redactState, EntryMax}, ".json") }

// Own adds lpuctl's config file, which can have some keys.
func (c *Collector) Own(p string, keys []string) { c.exact[p] = wanted{redactOwn(keys), EntryMax} }

// Table adds a ring table.
func (c *Collector) Table(p string) { c.exact[p] = wanted{redactTable, EntryMax} }

// Config adds config files of other programs: of those that a pattern matches, what lpuctl
// reads of them.
func (c *Collector) Config(pattern string) {
	matches, err := c.root.Glob(pattern)
	if err != nil {
		c.omit(pattern, host.Reason(err).Error())
	}
	for _, p := range matches {
		c.exact[p] = wanted{redactConfig, EntryMax}
	}
}

// all adds the files of a directory.
func (c *Collector) all(dir string, as wanted, kinds ...string) {
	c.looked[dir] = true
	real, err := c.root.Resolve(dir)
	if err != nil {
		return
	}
	entries, err := os.ReadDir(real)
	if err != nil && !host.IsAbsent(err) {
		c.omit(dir, host.Reason(err).Error())
	}
	for _, e := range entries {
		if slices.Contains(kinds, path.Ext(e.Name())) {
			c.exact[path.Join(dir, e.Name())] = as
		}
	}
	c.dirs = append(c.dirs, dir)
}

// Bundle returns what was collected. head is the index without its files and notes.
func (c *Collector) Bundle(head Index) *Bundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.exact {
		c.looked[p] = true
	}
	for _, p := range slices.Concat(slices.Collect(maps.Keys(c.read)), slices.Collect(maps.Keys(c.looked))) {
		c.take(p, p, depthMax)
	}
	for dir := range c.listed {
		c.list(dir)
	}
	b := c.bundle
	head.Format, head.Files = Format, b.Index.Files
	head.LeftOut, head.Replaced = notes(c.leftOut), c.names.notes()
	b.Index = head
	return b
}

// notes returns what was counted, sorted.
func notes(counted map[Note]int) []Note {
	all := []Note{}
	for n, count := range counted {
		n.Count = count
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Note) int { return cmp.Or(strings.Compare(a.What, b.What), strings.Compare(a.Why, b.Why)) })
	return all
}

// take takes a path of the root, with the directories and links that lead there. asked is
// the path that was looked at, by which it may be taken. It returns where that is, "" if
// nothing is there.
func (c *Collector) take(p, asked string, links int) string {
	at := "/"
	if path.Clean(p) == "/" {
		return at
	}
	elements := strings.Split(strings.Trim(path.Clean(p), "/"), "/")
	for i, element := range elements {
		next, last := path.Join(at, element), i == len(elements)-1
		if !admitted(next) && !c.isNamed(asked) && !c.present(next) {
			return ""
		}
		info := c.lstat(next)
		if info == nil {
			return ""
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target := c.link(next)
			if target == "" || links == 0 || last && !c.isNamed(asked) {
				return next // what it leads to was not looked at
			}
			return c.take(path.Join(append([]string{target}, elements[i+1:]...)...), asked, links-1)
		}
		if !info.IsDir() || last {
			return c.file(next, asked, info)
		}
		c.dir(next, info)
		at = next
	}
	return at
}

// lstat returns what a path is, nil if nothing is there or if that cannot be read, which is
// noted.
func (c *Collector) lstat(p string) fs.FileInfo {
	info, err := os.Lstat(c.root.Shown(p))
	if err == nil {
		return info
	}
	if !host.IsAbsent(err) && !errors.Is(err, unix.ENOTDIR) {
		c.omit(p, host.Reason(err).Error())
	}
	return nil
}

// Tables adds ring tables of containers.
func (c *Collector) Tables(dir string) { c.all(dir, wanted{redactTable, EntryMax}, ".json", "") }

// isNamed reports whether a path is one of a list.
func (c *Collector) isNamed(p string) bool { return c.exact[p].by != nil || slices.Contains(c.dirs, p) }

// admitted reports whether a path that was looked at may come into a bundle by that alone:
// what the kernel says of hardware, and device nodes.
func admitted(p string) bool {
	return p == "/sys" || p == "/dev" || below(p, "/sys") && !below(p, "/sys/fs") && !below(p, "/sys/kernel/security") || below(p, "/dev")
}

// present reports whether a bundle may say that something is at a path, and not what is in
// it: it may not where users and processes have their files.
func (c *Collector) present(p string) bool {
	for _, private := range []string{"/proc", "/home", "/root", "/tmp", "/var/tmp", "/run/user", "/var/lib/kubelet/pods", "/sys"} {
		if below(p, private) {
			return false
		}
	}
	return c.names.text(p) == p
}

func (c *Collector) dir(p string, info fs.FileInfo) {
	name := rootDir + p
	if c.bundle.Entries[name] != nil {
		return
	}
	c.put(name, &Entry{Dir: true})
	if !below(p, "/sys") {
		c.bundle.Index.Files[p] = status(info)
	}
}

// link takes a link and returns where it leads in the root.
func (c *Collector) link(p string) string {
	text, err := os.Readlink(c.root.Shown(p))
	if err != nil {
		c.omit(p, host.Reason(err).Error())
		return ""
	}
	target := text
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(p), target)
	}
	target = path.Clean(target)
	// A link out of the root leads to the root itself, as in a chroot.
	if path.IsAbs(text) || !below(path.Join("/x", path.Dir(p), text), "/x") {
		text, _ = filepath.Rel(path.Dir(p), target) // both are absolute
	}
	c.put(rootDir+p, &Entry{Link: text})
	return target
}

// file takes what is no link. asked is the path by which it was looked at.
func (c *Collector) file(p, asked string, info fs.FileInfo) string {
	if info.IsDir() {
		c.dir(p, info)
		return p
	}
	name := rootDir + p
	if had := c.bundle.Entries[name]; had != nil {
		// It may have been looked at by another path.
		if data, errno := c.attribute(asked); errno == 0 && len(data) > len(had.Data) && below(p, "/sys") {
			had.Data = data
			delete(c.bundle.Index.Files, p)
		}
		return p
	}
	s := status(info)
	e := &Entry{}
	as, named := c.exact[p]
	if !named {
		as, named = c.exact[asked]
	}
	switch {
	case !info.Mode().IsRegular():
		c.bundle.Index.Files[p] = s
	case below(p, "/sys"):
		e.Data, s.Errno = c.attribute(asked)
		if s.Errno != 0 {
			c.bundle.Index.Files[p] = s
		}
	case named:
		var err error
		if e.Data, err = c.content(p, as, info.Size(), &s); err != nil {
			c.omit(p, err.Error())
			return p
		}
		c.bundle.Index.Files[p] = s
	default: // only that it is there
		c.bundle.Index.Files[p] = s
	}
	c.put(name, e)
	return p
}

// content returns what of a file comes into the bundle. The status says that nothing does,
// because it cannot be read, or is larger than any reader takes. The error is why the file
// is left out.
func (c *Collector) content(p string, as wanted, size int64, s *Status) ([]byte, error) {
	if size > as.most {
		s.Size = size
		c.omit(p, "too large: only its size is here")
		return nil, nil
	}
	data, err := wholefile.Read(c.root.Shown(p), EntryMax)
	if err != nil {
		s.Errno = errnoOf(err)
		c.omit(p, host.Reason(err).Error())
		return nil, nil
	}
	text, err := as.by(p, data, c.names)
	if errors.Is(err, errUnparsed) {
		if text, err = shaped(p, data, c.stay); err == nil {
			c.omit("words of "+p, "it cannot be parsed, and so it is not known what in it is secret")
		}
	}
	if err != nil {
		return nil, err
	}
	text = sameLength(text, len(data))
	if c.taken += len(text); c.taken > TotalMax/2 {
		return nil, errors.New("the bundle would be too large")
	}
	return text, nil
}

// attribute returns what a file of sysfs said when it was looked at.
func (c *Collector) attribute(asked string) (data []byte, errno int) {
	r, ok := c.read[asked]
	if !ok {
		return nil, 0
	}
	if r.err != nil {
		return nil, errnoOf(r.err)
	}
	return r.data, 0
}

// errnoOf returns an error as a number of the kernel: EIO for any other, such as that of
// a read that hangs.
func errnoOf(err error) int {
	if number, ok := errors.AsType[unix.Errno](err); ok {
		return int(number)
	}
	return int(unix.EIO)
}

// list takes the names of what is in a directory of sysfs.
func (c *Collector) list(dir string) {
	real := c.take(dir, dir, depthMax)
	if real == "" || !below(real, "/sys") {
		return
	}
	if e := c.bundle.Entries[rootDir+real]; e != nil && e.Link != "" {
		real = c.follow(real)
	}
	entries, err := os.ReadDir(c.root.Shown(real))
	if err != nil {
		return // as when it was looked at
	}
	for _, e := range entries {
		p := path.Join(real, e.Name())
		if c.bundle.Entries[rootDir+p] != nil {
			continue
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			c.link(p)
		case e.IsDir():
			c.put(rootDir+p, &Entry{Dir: true})
		default:
			c.put(rootDir+p, &Entry{})
		}
	}
}

// follow returns where a link of the root leads.
func (c *Collector) follow(p string) string {
	real, err := c.root.Resolve(p)
	if err != nil {
		return p
	}
	return path.Join("/", strings.TrimPrefix(real, strings.TrimSuffix(string(c.root), "/")))
}

// Summary says how much of what kind is in a bundle.
type Summary struct {
	What  string
	Files int
	Bytes int
}

// Summary sums up a bundle: what the kernel says, and each other file.
func (b *Bundle) Summary() []Summary {
	var all []Summary
	hardware := Summary{What: "what the kernel says of the cards and the ports above (/sys)"}
	nodes := Summary{What: "numbers of device nodes (/dev)"}
	for _, name := range b.Names() {
		e := b.Entries[name]
		switch {
		case below(name, rootDir+"/sys"):
			if !e.Dir {
				hardware.Files++
				hardware.Bytes += len(e.Data)
			}
		case e.Dir, e.Link != "":
		case below(name, rootDir+"/dev"):
			nodes.Files++
		default:
			what := strings.TrimPrefix(name, rootDir)
			all = append(all, Summary{what, 1, len(e.Data)})
		}
	}
	return append([]Summary{hardware, nodes}, all...)
}

// String is a line for people.
func (n Note) String() string {
	text := n.What
	if n.Count > 1 {
		text = fmt.Sprintf("%d %s", n.Count, n.What)
	}
	if n.Why != "" {
		text += ": " + n.Why
	}
	return text
}
