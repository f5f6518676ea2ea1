package runtimes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// tomlRuntime is a runtime that has CDI whenever it is new enough, and whose TOML files
// say where it looks.
type tomlRuntime struct {
	product
	since     string // the first release with CDI
	dirsSince string // the first release that reads cdi_spec_dirs
	main      string // the file of the administrator
	// files are all that a release reads, in the order of reading. It does not start if
	// one of them is named and not there.
	files  func(c *checker, r release, cmd command) ([]string, error)
	table  []string // the table of cdi_spec_dirs
	keys   string   // the types of its keys, as in knownKeys; "": not known
	then   string   // what to do after a change
	unit   string   // the service that starts it; "": none does
	socket string   // of its CRI, which tells its version; "": it has none
}

// bothDirs are the directories that the CDI library reads by default.
func bothDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// read returns the check of a runtime, which finds its state from its version, its files,
// and how its service starts it.
func (c *checker) read(k tomlRuntime) func(context.Context, *Runtime) bool {
	return func(ctx context.Context, r *Runtime) bool {
		p, cmd := c.installed(ctx, k)
		usual := k.usualDirs(p.release)
		dirs, at, err := c.specDirs(k, p.release, cmd, usual)
		if p.isAbsent(at, cmd) {
			return false
		}
		r.isOf(p, r.Name)
		r.UsedByKubelet = c.kubeletUses(k.socket)
		r.Unused = p.path == "" && !p.release.Known() && !r.UsedByKubelet
		inService := at.file != "" && at.file == c.Shown(cmd.by)
		edit, stated := at, err == nil && (at.line > 0 || inService) && !p.release.Before(k.dirsSince)
		if !stated {
			dirs, edit = usual, c.whole(k.main)
		}
		if r.supports(p, k.since) && r.startsWith(cmd, r.Name, at, err, errors.As(err, new(*tomlError))) {
			r.CDI, r.SpecDirs = On, dirs
		}
		if r.CDI != Unknown && !stated {
			at = location{file: cmp.Or(at.file, c.Shown(p.path))}
		}
		r.setFileSource(stated || r.CDI == Off, at)
		if r.CDI == On {
			c.requireSpecDir(r, dirs, at, fmt.Sprintf("in %s set %s = %s%s", edit, k.key(inService), c.addSpecDir(dirs), k.then))
			c.requireDirs(r, dirs)
		}
		return true
	}
}

// key names what sets the directories, in a file or in the service.
func (k tomlRuntime) key(inService bool) string {
	if inService {
		return "--cdi-spec-dirs or CONTAINER_CDI_SPEC_DIRS"
	}
	return strings.Join(k.path(), ".")
}

// path leads to cdi_spec_dirs in a file.
func (k tomlRuntime) path() []string { return append(slices.Clone(k.table), keyDirs) }

// installed finds the program of a runtime, and how its service starts it.
func (c *checker) installed(ctx context.Context, k tomlRuntime) (p program, cmd command) {
	p = c.find(k.product)
	if !p.release.Known() && p.differ == "" && k.socket != "" && !c.filesOnly {
		p.release = c.askVersion(ctx, k.socket)
	}
	if k.unit != "" {
		cmd = c.commandOf(k.unit, nil, k.binary)
	}
	return p, cmd
}

// isAbsent reports whether there is neither a program nor a file of its nor a service.
func (p program) isAbsent(at location, cmd command) bool {
	return p.path == "" && at.file == "" && len(cmd.args) == 0
}

// startsWith reports whether a runtime starts with its service and its files, of which
// err says what is wrong, and adds a finding if it is not known to. refused says that err
// is of what the files hold, not of reading them.
func (r *Runtime) startsWith(cmd command, name string, at location, err error, refused bool) bool {
	switch {
	case cmd.fault != nil:
		r.addFault(cmd.fault)
	case err != nil && refused:
		r.addFault(newFinding(finding.ConfigRefused, at, name+" does not start with this: "+host.Reason(err).Error(), ""))
	case err != nil:
		r.addFault(unreadable(at, "", err))
	default:
		return true
	}
	return false
}

// addFault adds why a runtime does not start, and then CDI is off, or why its files do
// not tell.
func (r *Runtime) addFault(f *finding.Finding) {
	if r.addFinding(f); f.Severity == finding.Error {
		r.CDI = Off
	}
}

// usualDirs are the directories that a release reads if its files do not say.
func (k tomlRuntime) usualDirs(r release) []string {
	if k.binary == "podman" && !r.Before("5.5") && r.Before("5.6") {
		return bothDirs()[:1]
	}
	return bothDirs()
}

// supports reports whether the release of a program is known and has CDI, and adds a
// finding if not.
func (r *Runtime) supports(p program, since string) bool {
	switch {
	case !p.release.Known():
		r.add(finding.VersionUnknown, location{}, "its version is not known"+p.differ, "")
		return false
	case p.release.Before(since):
		r.CDI = Unsupported
		r.add(finding.CDIUnsupported, location{}, fmt.Sprintf("%s %s has no CDI", r.Name, r.Version), "install "+since+" or later")
		return false
	}
	return true
}

// specDirs reads cdi_spec_dirs. If nothing sets it, at is the first file that exists,
// without a line.
func (c *checker) specDirs(k tomlRuntime, r release, cmd command, usual []string) (dirs []string, at location, err error) {
	files, err := k.files(c, r, cmd)
	if err != nil {
		return nil, c.whole(k.main), err
	}
	dirs, appends := usual, false
	for _, file := range files {
		d, err := c.readTOML(file)
		if host.IsAbsent(err) { // a link that leads nowhere
			continue
		}
		if err == nil {
			err = k.checkTypes(d, r)
		}
		if err != nil {
			return nil, errorLocation(c.Shown(file), err), err
		}
		value := valueAt(d.tree, k.path()...)
		if value == nil {
			at.file = cmp.Or(at.file, d.shown)
			continue
		}
		at = d.at(k.path()...)
		if k.binary == "podman" {
			value, appends = withoutAttributes(value, appends)
		}
		given, err := list(value)
		if err != nil && !r.Before(k.dirsSince) {
			return nil, at, &tomlError{at.line, fmt.Sprintf("%s %v", keyDirs, err)}
		}
		if dirs = given; appends {
			dirs = append(slices.Clone(usual), given...)
			usual = dirs
		}
	}
	if given := crioDirs(cmd); given != nil { // above all files
		dirs, at = given, c.whole(cmd.by)
	}
	return dirs, at, nil
}

// checkTypes returns what is wrong with the type of a value, because of which the runtime
// does not start.
func (k tomlRuntime) checkTypes(d *document, r release) (err error) {
	for _, key := range keysKnownTo(k.keys, r) {
		each(lookup(d.tree, key.plugin), key.path, func(at []string, value any) {
			items := value
			if !r.Before("4.8") && key.kind == "strings" {
				items, _ = withoutAttributes(value, false)
			}
			must := key.wrong(at, items)
			if at = append([]string{key.plugin}, at...); must != "" && err == nil {
				err = &tomlError{d.at(at...).line, fmt.Sprintf("%s must be %s, not %s", strings.Join(at, "."), must, shown(value))}
			}
		})
	}
	return err
}

// withoutAttributes leaves the tables out of a list of podman's. One with append = true
// says that this list, and those in later files, are added to what was there
// (containers.conf(5)).
func withoutAttributes(value any, appends bool) (any, bool) {
	items, isList := value.([]any)
	if !isList {
		return value, appends
	}
	kept := []any{}
	for _, item := range items {
		attributes, isTable := item.(map[string]any)
		if on, isBool := attributes["append"].(bool); isTable && isBool && len(attributes) == 1 {
			appends = on
			continue
		}
		kept = append(kept, item)
	}
	return kept, appends
}

// filesBelow are the files in a directory and in those below it, in the order of their
// paths. As CRI-O does, it takes a link for a file, also one to a directory, which may
// lead in a circle.
func (c *checker) filesBelow(dir string) (files []string, err error) {
	matches, err := c.Glob(dir + "/*")
	real, resolveErr := c.Resolve(dir)
	err = cmp.Or(err, resolveErr)
	for _, name := range matches {
		if info, statErr := os.Lstat(filepath.Join(real, path.Base(name))); statErr != nil || !info.IsDir() {
			files = append(files, name)
			continue
		}
		below, belowErr := c.filesBelow(name)
		files, err = append(files, below...), cmp.Or(err, belowErr)
	}
	return files, err
}

func (m machine) noDirectories(files []string) []string {
	return slices.DeleteFunc(files, func(file string) bool {
		info, err := m.stat(file)
		return err == nil && info.IsDir()
	})
}

func (m machine) stat(path string) (os.FileInfo, error) {
	real, err := m.Resolve(path)
	if err != nil {
		return nil, err
	}
	return os.Stat(real)
}
