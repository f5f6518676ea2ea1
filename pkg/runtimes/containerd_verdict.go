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
	l := line{supported: !r.before("1.7"), on: !r.before("2.0"), always: !r.before("2.4")}
	switch {
	case r.before("1.7.17"):
		l.version, l.maxVersion = 1, math.MaxInt64
	case r.before("2.0"):
		l.version, l.maxVersion = 1, 2
	case r.before("2.3"):
		l.merging, l.version, l.maxVersion = byKey, 3, 3
	default:
		l.merging, l.version, l.maxVersion = migrated, 4, 4
	}
	return l
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
	why        string // it has no effect; "": it may have
	fix        string // what to do about that; "": nothing, because something else takes its place
}

// judge tells what a release makes of the config. told says that containerd was told to read the main file.
func (c *config) judge(r release, told bool) *verdict {
	v := &verdict{config: c, line: lineOf(r), release: r, state: Unknown, failure: c.failure, table: tableV3}
	v.version, v.versionBy = v.wholeVersion()
	if v.merging == wholeTables {
		if v.table = tableV2; v.version == 1 {
			v.table = tableV1
		}
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
	v.dirs = bothDirs()
	on := v.on
	if s := v.enable; s != nil {
		var isBool bool
		if on, isBool = s.value.(bool); !isBool {
			v.failure = refused(s.place, fmt.Sprintf("%s must be true or false, not %#v", s.key, s.value), "")
		}
	}
	if s := v.specDirs; s != nil {
		var err error
		if v.dirs, err = list(s.value); err != nil {
			v.failure = refused(s.place, s.key+" "+err.Error(), "")
		} else {
			v.dirs = orDefault(v.release, v.dirs)
		}
	}
	if v.criOff != nil && v.criOff.value == v.table { // then nobody reads the table
		v.failure = nil
	}
	if v.state = Off; on && v.criOff == nil {
		v.state = On
	}
	v.lost = slices.DeleteFunc(v.lost, func(s setting) bool { // what is lost and would change nothing
		dirs, err := list(s.value)
		return s.value == on || s.key == keyDirs && err == nil && slices.Equal(dirs, v.dirs)
	})
}

// orDefault are the directories that are read where a config lists some: since 2.4, whose CDI library is 1.1.1, no
// directories are the default ones.
func orDefault(r release, dirs []string) []string {
	if len(dirs) == 0 && !r.before("2.4") {
		return bothDirs()
	}
	return dirs
}

// wholeVersion is what the whole config is taken to be of: the last version that a file states.
func (v *verdict) wholeVersion() (version int64, by place) {
	if version = v.line.version; len(v.files) == 0 {
		version = max(version, 2) // for the one that is to be written
	}
	for _, f := range v.files {
		switch {
		case v.merging == wholeTables && f.Version != 0, v.merging == byKey && f.Version > 1:
			version, by = f.Version, f.at("version")
		case v.merging == migrated:
			version, by = max(f.Version, v.line.version), f.at("version")
		}
	}
	return version, by
}

// refusal is why the release does not start with the config.
func (v *verdict) refusal() *finding.Finding {
	var root, before int64
	for _, f := range v.files {
		root = cmp.Or(root, f.Version)
		old := f.Version < 2 && v.merging == byKey // it is migrated to the version of those before
		if !old {
			before = f.Version
		}
		highest, wrong := v.maxVersion, f.Version < 0 || f.Version == v.version && v.version > v.maxVersion || old && before > v.maxVersion
		if f.Version > root && !v.release.before("2.3") && v.release.before("2.3.5") {
			highest, wrong = root, true
		}
		if wrong {
			return refused(f.at("version"), fmt.Sprintf("containerd %s does not take version %d here", v.release.text, f.Version), fmt.Sprintf("write it in version %d", highest))
		}
		if at := v.badName(f); at.file != "" {
			return refused(at, "that is not the whole name of a plugin", "write the whole name, such as "+tableV2)
		}
	}
	return nil
}

// badName is where a file names a plugin in a way that is refused; nowhere if it does not.
func (v *verdict) badName(f *configFile) place {
	version, dots, names := f.Version, 1, map[string][]string{"disabled_plugins": f.Disabled, "required_plugins": f.Required}
	if v.merging == wholeTables {
		version, dots, names["plugins"] = v.version, 3, slices.Sorted(maps.Keys(f.Plugins))
	}
	for _, list := range slices.Sorted(maps.Keys(names)) {
		bad := slices.IndexFunc(names[list], func(name string) bool { return strings.Count(name, ".") < dots })
		if version > 1 && bad >= 0 {
			return f.at(list, names[list][bad])
		}
	}
	return place{}
}

// disabledCRI is where the config disables CRI, or a plugin that CRI needs.
func (v *verdict) disabledCRI() *setting {
	for _, f := range v.files {
		for _, name := range f.Disabled {
			off := name == tableV2 || name == tableV3 || name == "io.containerd.cri.v1.images" || name == tableV1 && f.Version < 2
			if v.merging == wholeTables {
				off = name == v.table
			}
			if off {
				return &setting{place: f.at("disabled_plugins", name), value: name}
			}
		}
	}
	return nil
}

// winner finds the setting of a key that counts, and notes the others as lost.
func (v *verdict) winner(key string) (wins *setting) {
	var all []*setting
	for _, f := range v.files {
		for _, table := range tables() {
			value := lookup(f.plugin(table), key)
			if value == nil {
				continue
			}
			s := &setting{place: f.at("plugins", table, key), file: f, table: table, key: key, value: value}
			s.why, s.fix = v.ineffective(s)
			all = append(all, s)
			// Merged by key, the new table is laid over the old one, whatever the order of the files.
			if s.why == "" && (wins == nil || v.merging != byKey || table == tableV3 || wins.table != tableV3) {
				wins = s
			}
		}
	}
	for _, s := range all {
		if s == wins {
			continue
		}
		if s.why == "" {
			s.why = wins.place.String() + " takes its place"
		}
		v.lost = append(v.lost, *s)
	}
	return wins
}

// ineffective says why a setting has no effect, if that is so whatever the others are, and what to do about it.
func (v *verdict) ineffective(s *setting) (why, fix string) {
	last, table := v.lastWith(s.table), s.file.plugin(s.table)
	switch {
	case !v.reads(s):
		why = fmt.Sprintf("it has no effect: containerd %s does not read %s in a config of version %d", v.release.text, header(s.table), v.version)
		if v.versionBy.line > 0 {
			why += fmt.Sprintf(" (%s)", v.versionBy)
		}
		return why, "move it to " + header(v.table)
	case s.key == keyEnable && v.always:
		return "it has no effect since containerd 2.4, where CDI is always on", ""
	case v.merging != wholeTables:
		return "", ""
	case last != s.file:
		return fmt.Sprintf("it has no effect: containerd 1.x takes the whole table from the last file that has it, %s", last.at("plugins", s.table)), "set it there"
	case table[s.key] == nil && table[strings.ToUpper(s.key)] == nil:
		return "it has no effect: containerd 1.x wants the key in lower case", "write " + s.key
	}
	return "", ""
}

// reads tells whether the table of a setting is one that is read.
func (v *verdict) reads(s *setting) bool {
	switch {
	case s.table == v.table:
		return true
	case v.merging == byKey:
		return v.version < 3 && (s.table == tableV2 || s.file.Version < 2)
	case v.merging == migrated:
		return s.file.Version < 2 || s.file.Version < 4 && s.table == tableV2
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
