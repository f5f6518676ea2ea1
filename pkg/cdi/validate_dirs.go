package cdi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// specDir is a directory in which specs lie.
type specDir struct {
	typed string // below the root; what stands last in it may be a link
	path  string // where it leads to
}

// Dirs checks the files that runtimes read from directories under the root, the last of which has the highest priority.
// Findings about files of other kinds are notes, because their makers have to mend them, unless such a file stops every runtime.
func (v *Validator) Dirs(dirs []string) (finding.List, error) {
	all, err := v.find(dirs)
	if err != nil {
		return nil, err
	}
	return v.dirs(all)
}

// DirsAsTyped is Dirs for directories that are not below the root.
func (v *Validator) DirsAsTyped(dirs ...string) (finding.List, error) {
	var all []specDir
	for _, dir := range dirs {
		all = append(all, specDir{filepath.Clean(dir), dir})
	}
	return v.dirs(all)
}

// CheckDirs finds what keeps runtimes, or some users, from reading directories under the root.
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
		parent, err := host.Root(v.Root).Resolve(filepath.Dir(filepath.Clean(dirs[i])))
		if err != nil {
			return nil, err
		}
		all = append(all, specDir{filepath.Join(parent, filepath.Base(dirs[i])), path})
	}
	return all, err
}

// isLink tells whether the directory is itself a symbolic link.
func (d specDir) isLink() bool {
	info, err := os.Lstat(d.typed)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// same tells whether two paths lead to one file or directory.
func same(a, b string) bool {
	x, err := os.Stat(a)
	y, otherErr := os.Stat(b)
	return a == b || err == nil && otherErr == nil && os.SameFile(x, y)
}

func (v *Validator) dirs(dirs []specDir) (all finding.List, err error) {
	v.checkDirs(&all, dirs)
	var documents, served, claims []*document // served: of our kind, those of lower priority first
	var read []string
	for _, dir := range dirs {
		if slices.ContainsFunc(read, func(before string) bool { return same(before, dir.path) }) {
			continue
		}
		read = append(read, dir.path)
		files, err := specFiles(dir.path, ".json", ".yaml", ".yml")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, path := range files {
			if filepath.Ext(path) == ".yml" {
				all.Add(finding.SpecYML, filepath.Base(path), "runtimes do not read it: only .json and .yaml", "").At(path, 0)
				continue
			}
			d := v.read(path)
			documents = append(documents, d)
			_, ofClaim := ClaimUID(path)
			switch {
			case d.spec != nil && d.spec.Kind == v.Kind:
				v.member(d, served)
				served = append(served, d)
			case d.spec != nil && d.spec.Kind == ClaimKind:
				v.claimMember(d, claims)
				claims = append(claims, d)
			case d.spec == nil && ofClaim:
				d.ofClaim()
			default:
				v.foreign(d)
			}
		}
	}
	for i, d := range served {
		v.checkHardware(d, func(name string) bool { return !definedBy(served[i+1:], name) })
	}
	for _, d := range documents {
		all = append(all, d.findings...)
	}
	v.checkRead(&all, dirs, served)
	v.checkServed(&all, read, served)
	v.checkClaims(&all, claims)
	return all, nil
}

// checkDirs finds directories that some runtimes or users do not read.
func (v *Validator) checkDirs(findings *finding.List, dirs []specDir) {
	for _, dir := range dirs {
		reached := slices.ContainsFunc(dirs, func(other specDir) bool { return same(other.path, dir.path) && !other.isLink() })
		if dir.isLink() && !reached {
			v.old(findings, finding.SpecDirLink, dir.typed, "find no spec in it: it is a symbolic link",
				fmt.Sprintf("put the directory in the place of the link: rm %s; mv %s %s", dir.typed, dir.path, dir.typed))
		}
		if info, err := os.Stat(dir.path); err == nil && info.IsDir() && info.Mode()&0o005 != 0o005 {
			message := "only some users may read it (mode %04o): podman and docker without root find no device"
			findings.Add(finding.SpecDirMode, dir.path, fmt.Sprintf(message, info.Mode().Perm()), "chmod 0755 "+dir.path)
		}
	}
}

// checkRead finds directories with specs of ours that no runtime of the machine reads.
func (v *Validator) checkRead(findings *finding.List, dirs []specDir, served []*document) {
	if v.RuntimeDirs == nil {
		return
	}
	read, _ := resolveDirs(v.Root, v.RuntimeDirs)
	for _, dir := range dirs {
		in := func(path string) bool { return same(filepath.Dir(path), dir.path) }
		ours := v.Own != "" && in(v.Own) || slices.ContainsFunc(served, func(d *document) bool { return in(d.path) })
		if ours && !slices.ContainsFunc(read, func(path string) bool { return same(path, dir.path) }) {
			message := "no container runtime of this machine reads it: they read " + strings.Join(v.RuntimeDirs, ", ")
			findings.Add(finding.SpecDirUnread, dir.typed, message, "")
		}
	}
}

// foreign judges a file that defines no device of ours: what is wrong with it is a note, unless it was meant to be ours or stops every
// runtime.
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

// isOwn tells whether a file is the one that lpuctl cdi refresh writes.
func (v *Validator) isOwn(path string) bool {
	if v.Own == "" {
		return filepath.Base(path) == fileName(v.Kind)+".json"
	}
	return path == v.Own
}

// member checks one file of our kind. before are those before it in its directory and in directories of lower priority.
func (v *Validator) member(d *document, before []*document) {
	d.renewal = "lpuctl cdi refresh"
	if !v.isOwn(d.path) {
		d.renewal = "rm " + d.path + "; lpuctl cdi refresh"
		own := cmp.Or(v.Own, fileName(v.Kind)+".json")
		d.add(finding.OtherFile, "", "another file of our kind: lpuctl cdi refresh writes "+own+" and leaves this one as it is",
			"if it is a leftover: rm "+d.path)
	}
	v.check(d)
	for _, other := range before {
		names := sharedNames(d.spec, other.spec)
		switch {
		case len(names) == 0:
		case filepath.Dir(other.path) == filepath.Dir(d.path):
			message := fmt.Sprintf("%s and %s both define %s: runtimes hand out neither", other.path, d.path, some(names))
			d.add(finding.SpecConflict, "", message, "remove one of the two: rm "+v.notOwn(d.path, other.path))
		case !same(other.path, d.path):
			message := fmt.Sprintf("%s defines %s too, and is not used for them", other.path, some(names))
			d.add(finding.Shadowed, "", message, "if it is a leftover: rm "+other.path)
		}
	}
}

// notOwn is the first of two files that is not our own.
func (v *Validator) notOwn(a, b string) string {
	if v.isOwn(a) {
		return b
	}
	return a
}

// definedBy tells whether one of some files defines a device.
func definedBy(files []*document, name string) bool {
	return slices.ContainsFunc(files, func(d *document) bool {
		return slices.ContainsFunc(d.spec.Devices, func(device specs.Device) bool { return device.Name == name })
	})
}
