package runtimes

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// causes are all the reasons for which CDI is not on after a restart.
func (v *verdict) causes() (causes []*finding.Finding) {
	if s := v.disabled; s != nil {
		causes = append(causes, newFinding(finding.CRIDisabled, s.location, criDisabledMessage, v.enablePlugin(s)))
	}
	switch {
	case v.failure != nil:
		return []*finding.Finding{v.failure}
	case v.disabled != nil && !v.wanted:
		f := note(causes[0])
		f.Remedy = "none is needed without Kubernetes; else " + f.Remedy
		return causes
	case v.state == Unsupported:
		return []*finding.Finding{newFinding(finding.CDIUnsupported, location{},
			fmt.Sprintf("containerd %s has no CDI: it starts containers without the device and gives no error", v.release.Text),
			"install containerd 1.7 or later")}
	}
	causes = append(causes, v.broken...)
	turnOn := strings.TrimSpace(fmt.Sprintf("%s\n    then %s. %s", v.edit(v.enable, keyEnable, "true"), v.restart(), v.dropIn()))
	at, message := v.at(), fmt.Sprintf("CDI is off: containerd %s has it off unless its config turns it on", v.release.Text)
	if v.enable != nil {
		at, message = v.enable.location, "CDI is off: enable_cdi = false is set here"
	}
	if v.state == Off && !v.on {
		causes = append(causes, newFinding(finding.CDIOff, at, message, turnOn))
	}
	return causes
}

// criDisabledMessage says what a disabled CRI means.
const criDisabledMessage = "its CRI is disabled, so that Kubernetes cannot use it; Docker and nerdctl do not need it"

// enablePlugin says how to enable a disabled plugin.
func (v *verdict) enablePlugin(s *setting) string {
	return fmt.Sprintf("%s, remove %q from disabled_plugins; then %s", v.line(s.location), s.value, v.restart())
}

// line names a line that is to be edited.
func (v *verdict) line(at location) string {
	if file := v.edited(at.file); file != at.file {
		return fmt.Sprintf("%sin %s (line %d of %s)", v.template(at.file), file, at.line, path.Base(at.file))
	}
	return fmt.Sprintf("%sin %s on line %d", v.template(at.file), at.file, at.line)
}

// edited is the file that people edit: the template of one that its distribution writes
// from a template, else the file itself.
func (v *verdict) edited(file string) string {
	name := map[string]string{"k3s": "config.toml.tmpl", "rke2": "config.toml.tmpl", "microk8s": "containerd-template.toml"}[v.distribution]
	if name == "" || file != v.at().file {
		return file
	}
	if v.version > 2 && v.distribution != "microk8s" {
		name = "config-v3.toml.tmpl"
	}
	return path.Join(path.Dir(file), name)
}

// edit says how to set a key so that this release reads it: file, line and, where it
// is missing, the table.
func (v *verdict) edit(current *setting, key, value string) string {
	table, set := header(v.table), key+" = "+value
	if len(v.files) == 0 {
		return fmt.Sprintf("write %s:\n    version = %d\n    %s\n    %s", v.at(), v.version, table, set)
	}
	if current != nil {
		return v.line(current.location) + " set " + set
	}
	return v.add(cmp.Or(v.lastWith(v.table), v.files[0]), set, v.table)
}

// add says how to add a line to a table of a file, which may have to be begun.
func (v *verdict) add(f *configFile, set, table string, below ...string) string {
	head := header(table, below...)
	file, of := v.edited(f.shown), ""
	if file != f.shown {
		of = " of " + path.Base(f.shown)
	}
	where := fmt.Sprintf("append to %s:\n    %s\n    ", file, head)
	if line := f.lines[lineKey(append([]string{"plugins", table}, below...)...)]; line > 0 {
		where = fmt.Sprintf("in %s under %s (line %d%s) add: ", file, head, line, of)
	}
	return v.template(f.shown) + where + set
}

// template says of the main file that its distribution writes it, and what is to be
// edited instead; "" for any other file.
func (v *verdict) template(file string) string {
	if file != v.at().file {
		return ""
	}
	format := map[string]string{
		"k0s": "k0s writes %s at every start while its first line says that k0s manages it. " +
			"Make this edit in a file in /etc/k0s/containerd.d: ",
		"microk8s": "MicroK8s writes %s at every start, from its template. Make this edit in the template: ",
		"talos":    "Talos writes %s. Make this edit with machine.files, in /etc/cri/conf.d/20-customization.part: ",
	}[v.distribution]
	if v.distribution == "k3s" || v.distribution == "rke2" {
		format = v.distribution + " writes %s at every start, from its template if there is one. Without a template, copy the file to the " +
			"name of the template, which then stays as it is when " + v.distribution + " is updated. Make this edit in the template: "
	}
	if format == "" {
		return ""
	}
	return fmt.Sprintf(format, file)
}

// dropIn says whether a drop-in file would do the same as the edit.
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
	case v.merging == byTable && holder != nil:
		return fmt.Sprintf("A drop-in with this line alone would do harm: containerd %s takes the whole table from the last file that has it, "+
			"and the one at %s would be lost.", v.release.Text, holder.at("plugins", v.table))
	case v.enable != nil && v.enable.file != main:
		return fmt.Sprintf("A drop-in would do only if it is read after %s.", v.enable.location.file)
	case v.merging == migrated: // 2.3 before 2.3.5 refuses a version above that of the main file
		version = cmp.Or(main.Version, 3)
	}
	pattern := absolute(main.path, main.Imports[i])
	name := path.Join(path.Dir(pattern), strings.Replace(path.Base(pattern), "*", "zz-lpuctl", 1))
	return fmt.Sprintf("A drop-in %s would do as well, for %s imports it: version = %d, and the line under %s.",
		v.Shown(name), main.at("imports"), version, header(v.table))
}

// reportIgnored adds the settings that have no effect, and keys that look like a misspelt
// setting.
func (v *verdict) reportIgnored(r *Runtime) {
	if v.failure != nil || !v.supported || !v.release.Known() {
		return
	}
	for _, s := range v.ignored {
		f := newFinding(finding.SettingLost, s.location, fmt.Sprintf("%s = %v: %s", s.key, s.value, s.why), s.fix)
		if s.fix == "" {
			note(f).Remedy = "none is needed"
		}
		r.addFinding(f)
	}
	for _, f := range v.files {
		for _, path := range sortedNames(f.lines) {
			v.reportKey(r, f, strings.Split(path, "\x00"))
		}
	}
}

// reportKey adds a key that is misspelt, or that is set outside of CRI's tables.
func (v *verdict) reportKey(r *Runtime, f *configFile, path []string) {
	key := path[len(path)-1]
	isSetting := key == keyDirs || key == keyEnable && !v.always
	if len(path) == 3 && path[0] == "plugins" && slices.Contains(tables(), path[1]) {
		meant := nearest.Word(key, []string{keyEnable, keyDirs})
		if strings.Contains(key, "cdi") && meant != "" && key != meant {
			r.add(finding.UnknownKey, f.at(path...), fmt.Sprintf("containerd has no setting %q here", key), fmt.Sprintf("did you mean %s?", meant))
		}
	} else if isSetting {
		r.add(finding.SettingLost, f.at(path...), key+" has no effect in this table", "move it to "+header(v.table))
	}
}

// acrossReleases says what the files mean to each release line, for a release that is not
// known.
func (v *verdict) acrossReleases(p program) string {
	var means []string
	for _, known := range []string{"1.6", "1.7", "2.0", "2.3.5", "2.4"} {
		means = append(means, fmt.Sprintf("%s in %s", v.evaluate(versions.Parse(known), false).state, known))
	}
	return fmt.Sprintf("its version is not known%s; by its files CDI would be %s", p.differ, strings.Join(means, ", "))
}
