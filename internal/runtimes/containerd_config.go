package runtimes

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The tables that hold CRI's settings: of config version 1, of version 2, and of versions
// 3 and 4 (containerd, docs/cri/config.md).
const (
	tableV1 = "cri"
	tableV2 = "io.containerd.grpc.v1.cri"
	tableV3 = "io.containerd.cri.v1.runtime"
)

func tables() []string { return []string{tableV1, tableV2, tableV3} }

// header is the line that a table of CRI's begins with, or a table in it.
func header(table string, below ...string) string {
	if table != tableV1 {
		table = strconv.Quote(table)
	}
	return "[" + strings.Join(append([]string{"plugins", table}, below...), ".") + "]"
}

const (
	keyEnable = "enable_cdi"
	keyDirs   = "cdi_spec_dirs"
)

// importsMax bounds of how many files a config is read.
const importsMax = 1000

// config is a containerd config: the main file and all that it imports, in the order of
// reading.
type config struct {
	machine
	installation
	main    string // path on the machine
	missing bool   // there is no main file
	files   []*configFile
	// failure is why containerd refuses it (an error), or why we cannot read it (a
	// warning).
	failure *finding.Finding
}

// configFile is one of the files, and the settings that concern CRI.
type configFile struct {
	*document `toml:"-"`

	Version  int64          `toml:"version"`
	Imports  []string       `toml:"imports"`
	Disabled []string       `toml:"disabled_plugins"`
	Required []string       `toml:"required_plugins"`
	Plugins  map[string]any `toml:"plugins"`
}

// at is the main file as a whole.
func (c *config) at() location { return c.whole(c.main) }

// imported is a file to read, and where it is imported.
type imported struct {
	name string
	by   location
}

// loadConfig reads a config as containerd does: breadth first, each file once.
func (m machine) loadConfig(inst installation, main string, r release) *config {
	c := &config{machine: m, installation: inst, main: main}
	for pending := []imported{{name: main}}; len(pending) > 0 && c.failure == nil; pending = pending[1:] {
		next := pending[0]
		if slices.ContainsFunc(c.files, func(f *configFile) bool { return f.path == next.name }) {
			continue
		}
		var f *configFile
		d, err := m.readTOML(next.name)
		if err == nil {
			f, err = newConfigFile(d)
		}
		if err != nil {
			c.fail(next, err)
			continue
		}
		c.files = append(c.files, f)
		more, err := m.imports(f, r)
		if err == nil && len(c.files) >= importsMax {
			err = fmt.Errorf("more than %d files are imported", importsMax)
		}
		if err != nil {
			c.failure = refused(f.at("imports"), err.Error(), "")
		}
		pending = append(pending, more...)
	}
	return c
}

// refused is a finding that containerd does not start with its config. Without a remedy
// it has the table's.
func refused(at location, message, remedy string) *finding.Finding {
	return newFinding(finding.ConfigRefused, at, "containerd does not start with this: "+message, remedy)
}

// fail notes why a file could not be loaded. Only the main file may be missing.
func (c *config) fail(file imported, err error) {
	at := errorLocation(c.Shown(file.name), err)
	switch absent := host.IsAbsent(err); {
	case errors.As(err, new(*tomlError)):
		c.failure = refused(at, err.Error(), "correct this line or the line above")
	case absent && len(c.files) == 0:
		c.missing = true
	case absent:
		c.failure = refused(file.by, "there is no "+at.file+", which is imported here", "remove it from imports, or make the file")
	default:
		c.failure = unreadable(at, "it cannot be read: ", err)
	}
}

// absolute is the path that a path in a file means.
func absolute(file, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(path.Dir(file), p)
}

// imports is what a file imports. Only * makes a pattern. Before 1.7.17 a pattern was
// relative to where containerd was started, which is / for a service.
func (m machine) imports(f *configFile, r release) (files []imported, err error) {
	for _, i := range f.Imports {
		matches := []string{absolute(f.path, i)}
		if strings.Contains(i, "*") {
			if r.Known() && r.Before("1.7.17") {
				matches[0] = absolute("/", i)
			}
			if matches, err = m.Glob(matches[0]); err != nil {
				return nil, err
			}
		}
		for _, name := range matches {
			files = append(files, imported{name, f.at("imports", i)})
		}
	}
	return files, nil
}

// newConfigFile reads the settings that concern CRI, and checks their types.
func newConfigFile(d *document) (*configFile, error) {
	f := &configFile{document: d}
	if e, ok := errors.AsType[*toml.DecodeError](toml.Unmarshal(d.data, f)); ok {
		line, _ := e.Position()
		return nil, &tomlError{line, strings.Join(e.Key(), ".") + " has a value of the wrong type"}
	}
	for _, name := range tables() {
		if f.Plugins[name] != nil && f.plugin(name) == nil {
			return nil, &tomlError{d.at("plugins", name).line, header(name) + " must be a table"}
		}
	}
	return f, nil
}

// plugin is a plugin's table; nil if the file has none.
func (f *configFile) plugin(name string) map[string]any {
	t, _ := f.Plugins[name].(map[string]any)
	return t
}
