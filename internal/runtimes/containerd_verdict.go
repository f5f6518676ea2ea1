package runtimes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// merging is how a release line of containerd makes one config of several files.
type merging int

const (
	byTable merging = iota // the last file that has a table has it alone
	// byKey: tables are merged first, and migrated if the version of the whole asks for it.
	byKey
	migrated // each file is migrated first, then tables are merged
)

// behavior is what a release line of containerd does with its config, as read in its
// cmd/containerd/server/config (services/server/config in 1.x) and plugins/cri, and
// measured.
type behavior struct {
	supported  bool // it has CDI
	on         bool // without a setting, CDI is on; in a verdict, with the effective setting
	always     bool // CDI is always on: there is no setting any more
	merging    merging
	version    int64 // of a config that states none
	maxVersion int64 // of a config that it starts with
}

// behaviorOf finds the release line. A release after the last known line is taken to be
// like that one.
func behaviorOf(r release) behavior {
	b := behavior{supported: !r.Before("1.7"), on: !r.Before("2.0"), always: !r.Before("2.4")}
	switch {
	case r.Before("1.7.17"):
		b.version, b.maxVersion = 1, math.MaxInt64
	case r.Before("2.0"):
		b.version, b.maxVersion = 1, 2
	case r.Before("2.3"):
		b.merging, b.version, b.maxVersion = byKey, 3, 3
	default:
		b.merging, b.version, b.maxVersion = migrated, 4, 4
	}
	return b
}

// verdict is the effective configuration of CDI, for one release of containerd and one
// config.
type verdict struct {
	*config
	behavior
	release release

	state            State
	dirs             []string
	version          int64     // of the whole config
	versionBy        location  // where it is stated
	table            string    // the table that this release reads CDI settings from
	enable, specDirs *setting  // the effective ones; nil: the default
	disabled         *setting  // where CRI is disabled; its value is the name
	wanted           bool      // the kubelet uses this containerd, so that CRI must not be disabled
	ignored          []setting // settings without effect
	failure          *finding.Finding
	broken           []*finding.Finding // why CRI does not start
	unjudged         []*finding.Finding // why it is not known whether CRI starts
}

// setting is one place in a config that sets something of CRI's.
type setting struct {
	location
	file       *configFile
	table, key string
	value      any
	exact      bool   // the key is written in lower case
	why        string // why it has no effect; "": it may have one
	fix        string // what to do about that; "": nothing, because something else replaces it
}

// evaluate finds the effective configuration. explicit says that the main file was named,
// so that it must exist.
func (c *config) evaluate(r release, explicit bool) *verdict {
	v := &verdict{config: c, behavior: behaviorOf(r), release: r, state: Unknown, failure: c.failure, table: tableV3}
	v.version, v.versionBy = v.effectiveVersion()
	if v.merging == byTable {
		if v.table = tableV2; v.version == 1 {
			v.table = tableV1
		}
	}
	if c.missing && explicit {
		v.failure = refused(c.at(), "the file is given as its config, and does not exist", "make the file")
	}
	if v.failure = cmp.Or(v.failure, c.fault); v.failure == nil && r.Known() {
		v.state, v.failure, v.disabled = Unsupported, v.refusal(), v.disabledCRI()
		if v.failure == nil && v.supported {
			v.readSettings()
		}
	}
	if v.failure != nil && v.failure.Severity == finding.Error {
		v.state = Off
	}
	return v
}

// readSettings finds the effective settings, and what they mean.
func (v *verdict) readSettings() {
	v.enable, v.specDirs = v.effective(keyEnable), v.effective(keyDirs)
	v.dirs = bothDirs()
	if s := v.enable; s != nil {
		v.on = s.value != false
	}
	if s := v.specDirs; s != nil {
		dirs, _ := list(s.value) // judgeCRI refuses what is no list
		v.dirs = orDefault(v.release, dirs)
	}
	v.judgeCRI()
	switch {
	case !v.on, v.disabled != nil, len(v.broken) > 0:
		v.state = Off
	case len(v.unjudged) > 0:
		v.state = Unknown
	default:
		v.state = On
	}
	v.ignored = slices.DeleteFunc(v.ignored, func(s setting) bool { // those that would change nothing
		dirs, err := list(s.value)
		return s.value == v.on || s.key == keyDirs && err == nil && slices.Equal(dirs, v.dirs)
	})
}

// orDefault are the directories that are read if the config lists dirs. Since 2.4, whose
// CDI library is 1.1.1, an empty list means the default.
func orDefault(r release, dirs []string) []string {
	if len(dirs) == 0 && !r.Before("2.4") {
		return bothDirs()
	}
	return dirs
}

// effectiveVersion is the version of the whole config: the last one that a file states.
func (v *verdict) effectiveVersion() (version int64, by location) {
	if version = v.behavior.version; len(v.files) == 0 {
		version = max(version, 2) // the version of the file that is to be written
	}
	for _, f := range v.files {
		switch {
		case v.merging == byTable && f.Version != 0, v.merging == byKey && f.Version > 1:
			version, by = f.Version, f.at("version")
		case v.merging == migrated:
			version, by = max(f.Version, v.behavior.version), f.at("version")
		}
	}
	return version, by
}

// refusal is why the release does not start with the config.
func (v *verdict) refusal() *finding.Finding {
	var root, before int64
	for _, f := range v.files {
		root = cmp.Or(root, f.Version)
		old := f.Version < 2 && v.merging == byKey // it is migrated to the version of the files before it
		if !old {
			before = f.Version
		}
		highest, wrong := v.maxVersion, f.Version < 0 || f.Version == v.version && v.version > v.maxVersion || old && before > v.maxVersion
		wrong = wrong || v.merging == migrated && f.Version > v.maxVersion
		if f.Version > root && !v.release.Before("2.3") && v.release.Before("2.3.5") {
			highest, wrong = root, true
		}
		if wrong {
			message := fmt.Sprintf("containerd %s does not accept version %d here", v.release.Text, f.Version)
			return refused(f.at("version"), message, fmt.Sprintf("write the file in version %d", highest))
		}
		if at := v.badName(f); at.file != "" {
			return refused(at, "this is not the full name of a plugin", "write the full name, such as "+tableV2)
		}
	}
	return v.sameDirectory()
}

// sameDirectory is that containerd keeps what must last, and what must not, in one
// directory (server.CreateTopLevelDirectories).
func (v *verdict) sameDirectory() *finding.Finding {
	by, dirs := v.at(), []string{v.rootDir, v.stateDir}
	for _, f := range slices.Backward(v.files) {
		for i, key := range []string{"root", "state"} {
			if set, _ := lookup(f.tree, key).(string); set != "" && dirs[i] == "" {
				if dirs[i] = set; by.line == 0 { // the last one
					by = f.at(key)
				}
			}
		}
	}
	if dir := cmp.Or(dirs[0], "/var/lib/containerd"); v.distribution == "" && dir == cmp.Or(dirs[1], "/run/containerd") {
		return refused(by, "root and state are both "+dir, "give each a directory of its own: root must last, state must not")
	}
	return nil
}

// badName is the location of a plugin name that this release refuses; the zero value if
// there is none.
func (v *verdict) badName(f *configFile) location {
	version, dots, names := f.Version, 1, map[string][]string{"disabled_plugins": f.Disabled, "required_plugins": f.Required}
	if v.merging == byTable {
		version, dots, names["plugins"] = v.version, 3, sortedNames(f.Plugins)
	}
	for _, list := range sortedNames(names) {
		for _, name := range names[list] {
			if version > 1 && strings.Count(name, ".") < dots {
				return f.at(list, name)
			}
		}
	}
	return location{}
}

// disabledCRI is where the config disables CRI, or a part of it.
func (v *verdict) disabledCRI() *setting {
	for _, plugin := range v.ownPlugins() {
		if s := v.disabledAt(plugin); s != nil {
			return s
		}
	}
	return nil
}

// effective finds the effective setting of a key, and adds the others to ignored.
func (v *verdict) effective(key string) (chosen *setting) {
	var all []*setting
	for _, f := range v.files {
		for _, table := range tables() {
			value := lookup(f.plugin(table), key)
			if value == nil {
				continue
			}
			_, exact := f.plugin(table)[key]
			s := &setting{location: f.at("plugins", table, key), file: f, table: table, key: key, value: value, exact: exact}
			s.why, s.fix = v.whyIgnored(s)
			all = append(all, s)
			// Merged by key, the new table is laid over the old one, whatever the order
			// of the files.
			better := chosen == nil || v.merging != byKey || table == tableV3 || chosen.table != tableV3
			if chosen != nil && chosen.exact != exact { // both are read, the one in lower case last
				better = exact
			}
			if s.why == "" && better {
				chosen = s
			}
		}
	}
	for _, s := range all {
		if s.why == "" {
			s.why = chosen.String() + " replaces it"
		}
		if s != chosen {
			v.ignored = append(v.ignored, *s)
		}
	}
	return chosen
}

// whyIgnored says why a setting has no effect whatever the other settings are, and what
// to do about it.
func (v *verdict) whyIgnored(s *setting) (why, fix string) {
	last, table := v.lastWith(s.table), s.file.plugin(s.table)
	switch {
	case !v.reads(s.file, s.table):
		why = fmt.Sprintf("it has no effect: containerd %s does not read %s in a config of version %d",
			v.release.Text, header(s.table), v.version)
		if v.versionBy.line > 0 {
			why += fmt.Sprintf(" (%s)", v.versionBy)
		}
		return why, "move it to " + header(v.table)
	case s.key == keyEnable && v.always:
		return "it has no effect since containerd 2.4, where CDI is always on", ""
	case v.merging != byTable:
		return "", ""
	case last != s.file:
		why = "it has no effect: containerd 1.x takes the whole table from the last file that has it, "
		return why + last.at("plugins", s.table).String(), "set it there"
	case table[s.key] == nil && table[strings.ToUpper(s.key)] == nil:
		return "it has no effect: containerd 1.x wants the key in lower case", "write " + s.key
	}
	return "", ""
}

// reads reports whether this release reads a table of a file.
func (v *verdict) reads(f *configFile, table string) bool {
	switch {
	case table == v.table:
		return true
	case v.merging == byKey:
		return v.version < 3 && (table == tableV2 || f.Version < 2)
	case v.merging == migrated:
		return f.Version < 2 || f.Version < 4 && table == tableV2
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

// origin is where the state of CDI is decided; the main file as a whole if no file sets
// it.
func (v *verdict) origin() location {
	switch {
	case v.failure != nil:
		return location{v.failure.File, v.failure.Line}
	case v.disabled != nil:
		return v.disabled.location
	case len(v.broken) > 0:
		return location{v.broken[0].File, v.broken[0].Line}
	case v.enable != nil:
		return v.enable.location
	}
	return v.at()
}
