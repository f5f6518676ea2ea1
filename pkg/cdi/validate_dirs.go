package cdi

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// specDir is a directory in which specs lie.
type specDir struct {
	typed string // below the root; what stands last in it may be a link
	path  string // where it leads to
}

// Dirs checks the files that runtimes read from directories under the root, the last of
// which has the highest priority. Findings about files of other kinds are notes, because
// their makers have to mend them, unless such a file stops every runtime.
func (v *Validator) Dirs(dirs []string) (finding.List, error) {
	r, err := v.readBelow(dirs)
	if err != nil {
		return nil, err
	}
	return v.dirs(r), nil
}

// DirAsTyped is Dirs for a directory that is not below the root.
func (v *Validator) DirAsTyped(dir string) (finding.List, error) {
	r, err := v.readAll([]specDir{{filepath.Clean(dir), dir}}, []Order{{}})
	if err != nil {
		return nil, err
	}
	return v.dirs(r), nil
}

// Effective finds what is wrong with the devices that a container gets: nodes that are
// not their LPUs'. Every other fault of the files is left out.
func (v *Validator) Effective(dirs []string) (finding.List, error) {
	all, err := v.Dirs(dirs)
	return slices.DeleteFunc(all, func(f finding.Finding) bool {
		return !slices.Contains([]finding.ID{finding.NodeWrong, finding.SetWrong, finding.CommonNode, finding.NodeNumbers}, f.ID)
	}), err
}

// Unserved finds, as warnings, which of the Devices a container does not get, or gets
// with nodes that are not its LPUs'.
func (v *Validator) Unserved(dirs []string) (findings finding.List, err error) {
	r, err := v.readBelow(dirs)
	if err != nil {
		return nil, err
	}
	now, names := v.devicesNow(), r.names(v.Kind)
	for _, name := range v.Devices {
		v.checkDevice(&findings, name, r, now, names)
	}
	for _, fault := range v.checkHardware(r) {
		if slices.Contains(v.Devices, v.Kind+"="+fault.Subject) {
			findings = append(findings, fault)
		}
	}
	for i := range findings {
		findings[i].Severity = finding.Warning
	}
	return findings, nil
}

// CheckDirs finds what keeps runtimes, or some users, from reading directories under the
// root.
func (v *Validator) CheckDirs(dirs []string) (findings finding.List, err error) {
	all, err := v.find(dirs)
	v.checkDirs(&findings, all)
	v.checkRead(&findings, all, nil)
	return findings, err
}

// find finds directories under the root, as in a chroot.
func (v *Validator) find(dirs []string) (all []specDir, err error) {
	real, err := resolveDirs(v.Root, dirs)
	for i, path := range real {
		parent, err := v.Root.Resolve(filepath.Dir(filepath.Clean(dirs[i])))
		if err != nil {
			return nil, err
		}
		all = append(all, specDir{filepath.Join(parent, filepath.Base(dirs[i])), path})
	}
	return all, err
}

// isLink reports whether the directory is itself a symbolic link.
func (d specDir) isLink() bool {
	info, err := os.Lstat(d.typed)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// isUsual reports whether a path is one of the directories that the CDI library reads by
// default, and not through a link.
func (v *Validator) isUsual(path string) bool {
	usual, err := v.find([]string{"/etc/cdi", DefaultSpecDir})
	return err == nil && slices.ContainsFunc(usual, func(dir specDir) bool { return !dir.isLink() && same(dir.path, path) })
}

// same reports whether two paths lead to one file or directory.
func same(a, b string) bool {
	x, err := os.Stat(a)
	y, otherErr := os.Stat(b)
	return a == b || err == nil && otherErr == nil && os.SameFile(x, y)
}

// notRead is said of a file whose name ends in .yml.
const notRead = "runtimes do not read it: only .json and .yaml"

func (v *Validator) dirs(r *reading) (all finding.List) {
	v.checkDirs(&all, r.dirs)
	for _, path := range r.unread {
		f := all.Add(finding.SpecYML, filepath.Base(path), notRead, "").At(path, 0)
		if data, _ := wholefile.Read(path, SpecMax); !bytes.Contains(data, []byte(v.Kind)) {
			f.Severity = finding.Note // its maker may have meant that
		}
	}
	var served, claims []*document // served: of our kind, those of lower priority first
	for _, d := range r.documents {
		_, ofClaim := ClaimUID(d.path)
		switch {
		case d.spec != nil && d.spec.Kind == v.Kind:
			v.member(d, served, r)
			served = append(served, d)
		case d.spec != nil && d.spec.Kind == ClaimKind:
			v.claimMember(d, claims, r)
			claims = append(claims, d)
		case d.spec == nil && ofClaim:
			d.ofClaim()
		default:
			v.foreign(d)
		}
	}
	v.checkHardware(r)
	for _, d := range r.documents {
		all = append(all, d.findings...)
	}
	v.checkRead(&all, r.dirs, served)
	v.checkServed(&all, r, served)
	v.checkClaims(&all, claims)
	return all
}

// checkDirs finds directories that some runtimes or users do not read.
func (v *Validator) checkDirs(findings *finding.List, dirs []specDir) {
	for _, dir := range dirs {
		reached := slices.ContainsFunc(dirs, func(other specDir) bool { return same(other.path, dir.path) && !other.isLink() })
		if dir.isLink() && !reached {
			remedy := fmt.Sprintf("put the directory in the place of the link: rm %s; mv %s %s", dir.typed, dir.path, dir.typed)
			if v.isUsual(dir.path) { // others' specs stay where they are: one of the two is emptied at boot
				own := fileName(v.Kind) + ".json"
				remedy = fmt.Sprintf("put a directory in the place of the link: rm %s; mkdir -m 0755 %s; mv %s %s", dir.typed, dir.typed,
					filepath.Join(dir.path, own), filepath.Join(dir.typed, own))
			}
			v.old(findings, finding.SpecDirLink, dir.typed, "find no spec in it: it is a symbolic link", remedy)
		}
		if info, err := os.Stat(dir.path); err == nil && info.IsDir() && info.Mode()&0o005 != 0o005 {
			message := "only some users may read it (mode %04o): podman and docker without root find no device"
			findings.Add(finding.SpecDirMode, dir.path, fmt.Sprintf(message, info.Mode().Perm()), "chmod 0755 "+dir.path)
		}
	}
}

// checkRead finds directories with specs of ours that no runtime of the machine reads.
func (v *Validator) checkRead(findings *finding.List, dirs []specDir, served []*document) {
	if len(v.Orders) == 0 {
		return
	}
	they := slices.Compact(slices.Sorted(slices.Values(dirsOf(v.Orders))))
	read, _ := resolveDirs(v.Root, they)
	for _, dir := range dirs {
		in := func(path string) bool { return same(filepath.Dir(path), dir.path) }
		ours := v.Own != "" && in(v.Own) || slices.ContainsFunc(served, func(d *document) bool { return in(d.path) })
		if ours && !slices.ContainsFunc(read, func(path string) bool { return same(path, dir.path) }) {
			message := "no container runtime of this machine reads it: they read " + strings.Join(they, ", ")
			findings.Add(finding.SpecDirUnread, dir.typed, message, "")
		}
	}
}

// foreign judges a file that defines no device of ours: what is wrong with it is a note,
// unless it was meant to be ours or stops every runtime.
func (v *Validator) foreign(d *document) {
	ours := strings.HasPrefix(d.name(), fileName(v.Kind)+".") || d.spec == nil && bytes.Contains(d.data, []byte(v.Kind))
	stops := []finding.ID{finding.SpecHangs, finding.SpecCrashes, finding.OneLetterName}
	for i := range d.findings {
		f := &d.findings[i]
		if !ours && !slices.Contains(stops, f.ID) {
			f.Severity = finding.Note
		}
		if v.isOwn(d.path) && d.data != nil && d.spec == nil {
			f.Remedy = "lpuctl cdi refresh"
		}
	}
	if d.spec != nil {
		d.checkOldKind(v.specNow(Options{}))
	}
}

// isOwn reports whether a file is the one that lpuctl cdi refresh writes.
func (v *Validator) isOwn(path string) bool {
	if v.Own == "" {
		return filepath.Base(path) == fileName(v.Kind)+".json"
	}
	return path == v.Own
}

// member checks one file of our kind. before are those before it.
func (v *Validator) member(d *document, before []*document, r *reading) {
	if !v.isOwn(d.path) {
		own := cmp.Or(v.Own, fileName(v.Kind)+".json")
		d.add(finding.OtherFile, "", "another file of our kind: lpuctl cdi refresh writes "+own+" and leaves this one as it is",
			"if it is a leftover: rm "+d.path)
	}
	v.check(d, r)
	for _, other := range before {
		names := sharedNames(d.spec, other.spec)
		switch {
		case len(names) == 0:
		case filepath.Dir(other.path) == filepath.Dir(d.path):
			message := fmt.Sprintf("%s and %s both define %s: runtimes hand out neither", other.path, d.path, some(names))
			d.add(finding.SpecConflict, "", message, "remove one of the two: rm "+v.notOwn(d.path, other.path))
		case !same(other.path, d.path):
			v.shadowed(d, other, some(names), r)
		}
	}
}

// shadowed finds that one of two files in different directories is not used for the names
// that both define.
func (v *Validator) shadowed(d, other *document, names string, r *reading) {
	first, second := r.orders(other, d), r.orders(d, other)
	const leftover = "if it is a leftover: rm "
	over := func(used, not *document) {
		used.add(finding.Shadowed, "", fmt.Sprintf("%s defines %s too, and is not used for them", not.path, names),
			leftover+v.notOwn(not.path, used.path))
	}
	switch {
	case len(first)+len(second) == 0: // no runtime reads both
	case len(first) == 0:
		over(d, other)
	case len(second) == 0:
		over(other, d)
	default:
		message := fmt.Sprintf("%s defines %s too: %s take this file, %s the other one",
			other.path, names, strings.Join(second, ", "), strings.Join(first, ", "))
		d.add(finding.Shadowed, "", message, leftover+v.notOwn(d.path, other.path))
	}
}

// renewalOf is how a file of our kind comes to be right.
func (v *Validator) renewalOf(path string) string {
	if v.isOwn(path) {
		return "lpuctl cdi refresh"
	}
	return "rm " + path + "; lpuctl cdi refresh"
}

// notOwn is the first of two files that is not our own.
func (v *Validator) notOwn(a, b string) string {
	if v.isOwn(a) {
		return b
	}
	return a
}
