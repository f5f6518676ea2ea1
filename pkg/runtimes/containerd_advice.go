package runtimes

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// causes are all the reasons for which CDI is not on after a restart.
func (v *verdict) causes() []*finding.Finding {
	switch {
	case v.failure != nil:
		return []*finding.Finding{v.failure}
	case v.state == Unsupported:
		return []*finding.Finding{found(finding.CDIUnsupported, place{}, fmt.Sprintf("containerd %s knows no CDI: it starts containers without the device, and says nothing", v.release.text),
			"install containerd 1.7 or later")}
	}
	var causes []*finding.Finding
	if s := v.criOff; s != nil {
		causes = append(causes, found(finding.CRIDisabled, s.place, criDisabled,
			fmt.Sprintf("in %s on line %d, take %q out of disabled_plugins; then %s", s.place.file, s.line, s.value, v.home.restart())))
	}
	turnOn := strings.TrimSpace(fmt.Sprintf("%s\n    then %s. %s", v.edit(v.enable, keyEnable, "true"), v.home.restart(), v.dropIn()))
	switch {
	case v.state != Off:
	case v.enable != nil && v.enable.value == false:
		causes = append(causes, found(finding.CDIOff, v.enable.place, "CDI is off: enable_cdi = false stands here", turnOn))
	case v.enable == nil && !v.on:
		causes = append(causes, found(finding.CDIOff, v.at(), fmt.Sprintf("CDI is off: containerd %s has it off unless its config turns it on", v.release.text), turnOn))
	}
	return causes
}

// criDisabled is what that means, for whom.
const criDisabled = "its CRI is disabled, so that Kubernetes cannot use it; Docker and nerdctl do not need it"

// edit says how to set a key so that this release heeds it: file, line and, where it is missing, the table.
func (v *verdict) edit(decides *setting, key, value string) string {
	table, set := header(v.table), key+" = "+value
	switch {
	case len(v.files) == 0:
		return fmt.Sprintf("write %s:\n    version = %d\n    %s\n    %s", v.at(), v.version, table, set)
	case decides != nil:
		return fmt.Sprintf("%sin %s on line %d set %s", v.template(decides.file), decides.place.file, decides.line, set)
	}
	f := cmp.Or(v.lastWith(v.table), v.files[0])
	if line := f.lines[lineKey("plugins", v.table)]; line > 0 {
		return fmt.Sprintf("%sin %s under %s (line %d) add: %s", v.template(f), f.Shown(f.path), table, line, set)
	}
	return fmt.Sprintf("%sappend to %s:\n    %s\n    %s", v.template(f), f.Shown(f.path), table, set)
}

// template says that an edit of a file must be made in the template that it is made from; "" if it may be edited itself.
func (v *verdict) template(f *configFile) string {
	if v.home.distribution == "" || f != v.files[0] {
		return ""
	}
	name := "config.toml.tmpl"
	if v.version > 2 {
		name = "config-v3.toml.tmpl"
	}
	return fmt.Sprintf("%s makes %s anew whenever it starts, from %s beside it if there is one: copy it to that name unless one is there, and edit the template as it says here for the file: ",
		v.home.distribution, v.at(), name)
}

// dropIn says whether a file of one's own would do as well.
func (v *verdict) dropIn() string {
	if len(v.files) == 0 {
		return ""
	}
	main := v.files[0]
	i := slices.IndexFunc(main.Imports, func(i string) bool { return strings.Contains(i, "*") })
	if i < 0 {
		return fmt.Sprintf("A drop-in would not be read: %s imports no directory of them.", v.at())
	}
	version, holder := v.version, v.lastWith(v.table)
	switch {
	case v.merging == wholeTables && holder != nil:
		return fmt.Sprintf("A drop-in with this alone would do harm: containerd %s takes the whole table from the last file that has it, and what stands at %s would be lost.",
			v.release.text, holder.at("plugins", v.table))
	case v.enable != nil && v.enable.file != main:
		return fmt.Sprintf("A drop-in would do only if it is read after %s.", v.enable.place.file)
	case v.merging == migrated: // 2.3 before 2.3.5 wants no version above the main file's
		version = cmp.Or(main.Version, 3)
	}
	pattern := absolute(main.path, main.Imports[i])
	name := path.Join(path.Dir(pattern), strings.Replace(path.Base(pattern), "*", "zz-lpuctl", 1))
	return fmt.Sprintf("A drop-in %s would do as well, for %s imports it: version = %d, and the line under %s.",
		v.Shown(name), main.at("imports"), version, header(v.table))
}

// reportLost adds the settings that have no effect, and keys that may have been meant for one.
func (v *verdict) reportLost(r *Runtime) {
	if v.failure != nil || !v.supported || !v.release.known() {
		return
	}
	for _, s := range v.lost {
		f := found(finding.SettingLost, s.place, fmt.Sprintf("%s = %v: %s", s.key, s.value, s.why), s.fix)
		if s.fix == "" {
			f.Severity, f.Remedy = finding.Note, "none is needed"
		}
		r.take(f)
	}
	for _, f := range v.files {
		for _, path := range slices.Sorted(maps.Keys(f.lines)) {
			v.reportKey(r, f, strings.Split(path, "\x00"))
		}
	}
}

// reportKey adds a key that is misspelt, or stands in a table that is not CRI's.
func (v *verdict) reportKey(r *Runtime, f *configFile, path []string) {
	key := path[len(path)-1]
	ours := key == keyDirs || key == keyEnable && !v.always
	if len(path) == 3 && path[0] == "plugins" && slices.Contains(tables(), path[1]) {
		meant := nearest.Word(key, []string{keyEnable, keyDirs})
		if strings.Contains(key, "cdi") && meant != "" && key != meant {
			r.add(finding.UnknownKey, f.at(path...), fmt.Sprintf("containerd knows no %q here", key), fmt.Sprintf("did you mean %s?", meant))
		}
	} else if ours {
		r.add(finding.SettingLost, f.at(path...), key+" has no effect in this table", "move it to "+header(v.table))
	}
}

// unsure says what the files mean to each release line, for when it is not known which one it is.
func (v *verdict) unsure(p program) string {
	var means []string
	for _, known := range []string{"1.6", "1.7", "2.0", "2.3.5", "2.4"} {
		means = append(means, fmt.Sprintf("%s in %s", v.judge(parseRelease(known), false).state, known))
	}
	return fmt.Sprintf("its version is not known%s; by its files CDI would be %s", p.differ, strings.Join(means, ", "))
}
