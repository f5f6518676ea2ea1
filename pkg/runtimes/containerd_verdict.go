package runtimes

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// merging is how a release line of containerd makes one config of several files.
type merging int

const (
	wholeTables merging = iota // the last file that has a table has it alone
	byKey                      // tables are merged first, and migrated if the version of the whole asks for it
	migrated                   // each file is migrated first, then tables are merged
)

// line is what a release line of containerd does with its config, as read in its cmd/containerd/server/config
// (services/server/config in 1.x) and plugins/cri, and measured.
type line struct {
	supported  bool // it knows CDI
	on         bool // without a setting
	always     bool // there is no such setting any more
	merging    merging
	version    int64 // without a file
	maxVersion int64 // of a config that it starts with
}

// lineOf finds the release line. Releases after the last one known are taken to be like it.
func lineOf(r release) line {
	switch {
	case r.before(1, 7):
		return line{version: 1, maxVersion: math.MaxInt64}
	case r.before(1, 7, 17):
		return line{supported: true, version: 1, maxVersion: math.MaxInt64}
	case r.before(2):
		return line{supported: true, version: 1, maxVersion: 2}
	case r.before(2, 3):
		return line{supported: true, on: true, merging: byKey, version: 3, maxVersion: 3}
	case r.before(2, 4):
		return line{supported: true, on: true, merging: migrated, version: 4, maxVersion: 4}
	}
	return line{supported: true, on: true, always: true, merging: migrated, version: 4, maxVersion: 4}
}

// verdict is what a release of containerd makes of a config.
type verdict struct {
	*config
	line
	release release

	state            State
	dirs             []string
	version          int64    // that the whole is taken to be of
	versionBy        place    // where that is stated
	table            string   // in which settings belong
	enable, specDirs *setting // that decide; nil: built in
	criOff           *setting // where CRI is disabled; its value is the name
	lost             []setting
	failure          *finding.Finding
}

// setting is one place in a config that sets something of CRI's.
type setting struct {
	place
	file       *configFile
	table, key string
	value      any
	why, fix   string // it has no effect, and what to do about that; "": it may have
	replaced   bool   // that is because a later one takes its place
}

// judge tells what a release makes of the config. told says that containerd was told to read the main file.
func (c *config) judge(r release, told bool) *verdict {
	v := &verdict{config: c, line: lineOf(r), release: r, state: Unknown, failure: c.failure, table: tableV3}
	v.version, v.versionBy = v.wholeVersion()
	if v.merging == wholeTables {
		v.table = map[bool]string{true: tableV1, false: tableV2}[v.version == 1]
	}
	if c.missing && told {
		v.failure = refused(c.at(), "there is no such file, and it was told to read it", "make the file")
	}
	if v.failure == nil && r.known() {
		v.failure = v.refusal()
	}
	if v.failure == nil && r.known() {
		v.state = Unsupported
		if v.supported {
			v.settle()
		}
	}
	if v.failure != nil && v.failure.Severity == finding.Error {
		v.state = Off
	}
	return v
}

// settle finds the settings that decide.
func (v *verdict) settle() {
	v.enable, v.specDirs, v.criOff = v.winner(keyEnable), v.winner(keyDirs), v.disabledCRI()
	v.dirs = bothDirs(v.release)
	on := v.on
	if s := v.enable; s != nil && v.always {
		s.why, s.fix, s.replaced = "it has no effect since containerd 2.4, where CDI is always on", "remove it", true
		v.lost, v.enable = append(v.lost, *s), nil
	} else if s != nil {
		value, isBool := s.value.(bool)
		if on = value; !isBool {
			v.failure = refused(s.place, fmt.Sprintf("%s must be true or false, not %#v", s.key, s.value), "write true")
		}
	}
	if s := v.specDirs; s != nil {
		var err error
		if v.dirs, err = list(s.value); err != nil {
			v.failure = refused(s.place, s.key+" "+err.Error(), "write a list of strings")
		}
		if err == nil {
			v.dirs = orDefault(v.release, v.dirs)
		}
	}
	if v.criOff != nil && v.criOff.value == v.table { // then nobody reads the table
		v.failure = nil
	}
	v.state = map[bool]State{true: On, false: Off}[on && v.criOff == nil]
	v.lost = slices.DeleteFunc(v.lost, func(s setting) bool { // what is lost and would change nothing
		dirs, err := list(s.value)
		return s.value == on || s.key == keyDirs && err == nil && slices.Equal(dirs, v.dirs)
	})
}

// orDefault are the directories that are read where a config lists some: since 2.4, whose CDI library is 1.1.1, no
// directories are the default ones.
func orDefault(r release, dirs []string) []string {
	if len(dirs) == 0 && !r.before(2, 4) {
		return bothDirs(r)
	}
	return dirs
}

// wholeVersion is what the whole config is taken to be of: the last version that a file states.
func (v *verdict) wholeVersion() (version int64, by place) {
	version = v.line.version
	for _, f := range v.files {
		switch {
		case v.merging == wholeTables && f.version != 0, v.merging == byKey && f.version > 1:
			version, by = f.version, f.at("version")
		case v.merging == migrated:
			version, by = max(f.version, v.line.version), f.at("version")
		}
	}
	return version, by
}

// refusal is why the release does not start with the config.
func (v *verdict) refusal() *finding.Finding {
	var root, before int64
	for _, f := range v.files {
		root = cmp.Or(root, f.version)
		old := f.version < 2 && v.merging == byKey // it is migrated to the version of those before
		if !old {
			before = f.version
		}
		switch {
		case f.version == v.version && v.version > v.maxVersion, old && before > v.maxVersion, f.version < 0:
			return refused(f.at("version"), fmt.Sprintf("%s knows no config of version %d", v.release.text, f.version), fmt.Sprintf("write the config in version %d", v.maxVersion))
		case f.version > root && !v.release.before(2, 3) && v.release.before(2, 3, 5):
			return refused(f.at("version"), fmt.Sprintf("the version is above the main file's, %d, which %s cannot take", root, v.release.text), fmt.Sprintf("write this file in version %d", root))
		}
		if at := v.badName(f); at.file != "" {
			return refused(at, "that is not the whole name of a plugin", "write the whole name, such as "+tableV2)
		}
	}
	return nil
}

// badName is where a file names a plugin in a way that is refused; nowhere if it does not.
func (v *verdict) badName(f *configFile) place {
	bad := func(name string) bool { return f.version > 1 && !strings.Contains(name, ".") }
	if v.merging == wholeTables {
		bad = func(name string) bool { return v.version > 1 && strings.Count(name, ".") < 3 }
		for _, name := range slices.Sorted(maps.Keys(f.plugins)) {
			if bad(name) {
				return f.at("plugins", name)
			}
		}
	}
	if i := slices.IndexFunc(f.disabled, bad); i >= 0 {
		return f.at("disabled_plugins", f.disabled[i])
	}
	if i := slices.IndexFunc(f.required, bad); i >= 0 {
		return f.at("required_plugins", f.required[i])
	}
	return place{}
}

// disabledCRI is where the config disables CRI, or a plugin that CRI needs.
func (v *verdict) disabledCRI() *setting {
	for _, f := range v.files {
		for _, name := range f.disabled {
			off := name == tableV2 || name == tableV3 || name == "io.containerd.cri.v1.images" || name == tableV1 && f.version < 2
			if v.merging == wholeTables {
				off = name == v.table
			}
			if off {
				return &setting{place: f.at("disabled_plugins", name), file: f, key: "disabled_plugins", value: name}
			}
		}
	}
	return nil
}

// winner finds the setting of a key that counts, and notes the others as lost.
func (v *verdict) winner(key string) *setting {
	var all []*setting
	var wins *setting
	for _, f := range v.files {
		for _, table := range []string{tableV1, tableV2, tableV3} {
			value := lookup(f.plugin(table), key)
			if value == nil {
				continue
			}
			s := &setting{place: f.at("plugins", table, key), file: f, table: table, key: key, value: value}
			v.heed(s)
			all = append(all, s)
			// Merged by key, the new table is laid over the old one, whatever the order of the files.
			if s.why == "" && (wins == nil || v.merging != byKey || table == tableV3 || wins.table != tableV3) {
				wins = s
			}
		}
	}
	for _, s := range all {
		if s.why == "" && s != wins {
			s.why, s.fix, s.replaced = fmt.Sprintf("%s takes its place", wins.place), "none is needed", true
		}
		if s.why != "" {
			v.lost = append(v.lost, *s)
		}
	}
	return wins
}

// heed notes why a setting has no effect, if that is so whatever the others are.
func (v *verdict) heed(s *setting) {
	table, last := dotted([]string{"plugins", s.table}), v.lastWith(s.table)
	switch {
	case !v.reads(s):
		s.why = fmt.Sprintf("it has no effect: containerd %s does not read [%s] in a config of version %d", v.release.text, table, v.version)
		if v.versionBy.line > 0 && v.versionBy.file != s.place.file {
			s.why += fmt.Sprintf(", which %s makes of the whole", v.versionBy)
		}
		s.fix = fmt.Sprintf("move it to [%s]", dotted([]string{"plugins", v.table}))
	case v.merging == wholeTables && last != s.file:
		s.why = fmt.Sprintf("it has no effect: containerd 1.x takes the whole table from the last file that has it, %s", last.at("plugins", s.table))
		s.fix = "set it there"
	case v.merging == wholeTables && s.file.plugin(s.table)[s.key] == nil && s.file.plugin(s.table)[strings.ToUpper(s.key)] == nil:
		s.why, s.fix = "it has no effect: containerd 1.x wants the key in lower case", "write "+s.key
	}
}

// reads tells whether the table of a setting is one that is read.
func (v *verdict) reads(s *setting) bool {
	switch {
	case s.table == v.table:
		return true
	case v.merging == byKey:
		return v.version < 3 && (s.table == tableV2 || s.file.version < 2)
	case v.merging == migrated:
		return s.file.version < 2 || s.file.version < 4 && s.table == tableV2
	}
	return false
}

// lastWith is the last file that has a table; nil if none has.
func (v *verdict) lastWith(table string) *configFile {
	for _, f := range slices.Backward(v.files) {
		if f.plugin(table) != nil {
			return f
		}
	}
	return nil
}

// decides is where that is written which decides; the main file as a whole if that is nowhere.
func (v *verdict) decides() place {
	switch {
	case v.failure != nil:
		return place{v.failure.File, v.failure.Line}
	case v.criOff != nil:
		return v.criOff.place
	case v.enable != nil:
		return v.enable.place
	}
	return v.at()
}
