package runtimes

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/versions"
)

// release is the version of a program.
type release = versions.Release

var linkedVersion = lazy.Regexp(`(?:ersion\.Version|main\.version)=['"]?([^'"\s]+)`)

// program is what is known of an installed program without running it.
type program struct {
	path    string // on the machine; "": it is not there
	release release
	maxCDI  string // the highest cdiVersion its CDI library loads
	differ  string // names two installed ones of different releases; the release is unknown then
}

// product names a program: its file, its Go modules, its Debian packages.
type product struct {
	binary   string
	dirs     []string // where its file may be; none: the usual ones
	modules  []string
	packages []string
}

// find looks for a program in its directories. If two differ in version, the version is
// unknown.
func (m machine) find(k product) (p program) {
	if k.dirs == nil {
		k.dirs = []string{"/usr/bin/", "/usr/local/bin/", "/usr/sbin/", "/usr/local/sbin/"}
	}
	for _, dir := range k.dirs {
		if !m.Exists(dir + k.binary) {
			continue
		}
		q := m.inspect(dir+k.binary, k)
		if p.path == "" {
			p = q
		}
		if q.release != p.release {
			return program{path: p.path, differ: fmt.Sprintf(": %s is %s, %s is %s",
				m.Shown(p.path), cmp.Or(p.release.Text, "unknown"), m.Shown(q.path), cmp.Or(q.release.Text, "unknown"))}
		}
	}
	return p
}

// inspect reads what the Go linker wrote into a program (runtime/debug.BuildInfo), else
// what the package database says of it.
func (m machine) inspect(path string, k product) program {
	p := program{path: path}
	real, err := m.Resolve(path)
	if err != nil {
		return p
	}
	p.release, p.maxCDI = readBuild(real, k.modules)
	if !p.release.Known() && (strings.HasPrefix(path, "/usr/bin/") || strings.HasPrefix(path, "/usr/sbin/")) {
		p.release = m.packaged(k.packages)
	}
	return p
}

// readBuild finds the version of a Go program and the CDI library in it, which knows
// cdiVersions up to its own.
func readBuild(file string, modules []string) (r release, maxCDI string) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return release{}, ""
	}
	for _, module := range append(info.Deps, &info.Main) {
		version := module.Version
		if module.Replace != nil { // k3s builds in its own containerd
			version = cmp.Or(module.Replace.Version, version)
		}
		if slices.Contains(modules, module.Path) {
			r = versions.Parse(version)
		}
		if strings.HasSuffix(module.Path, "/container-device-interface") {
			library := versions.Parse(version)
			maxCDI = fmt.Sprintf("%d.%d.0", library.Number[0], library.Number[1])
		}
	}
	if r.Before("0.1") { // (devel), or a commit that no tag leads to
		r = release{}
		// The linker's flags are kept unless -trimpath was given:
		// -X .../version.Version=v1.2.3
		for _, s := range info.Settings {
			if m := linkedVersion().FindStringSubmatch(s.Value); s.Key == "-ldflags" && m != nil {
				r = versions.Parse(m[1])
			}
		}
	}
	return r, maxCDI
}

// packaged is the version of the first of some packages that is installed (dpkg-query(1),
// /var/lib/dpkg/status).
func (m machine) packaged(names []string) release {
	data, _ := m.Read("/var/lib/dpkg/status", databaseMax)
	for _, name := range names {
		_, entry, _ := bytes.Cut(data, []byte("Package: "+name+"\n"))
		entry, _, _ = bytes.Cut(entry, []byte("\n\n"))
		_, version, ok := bytes.Cut(entry, []byte("\nVersion: "))
		if ok && bytes.Contains(entry, []byte("Status: install ok installed")) {
			version, _, _ = bytes.Cut(version, []byte("\n"))
			return versions.Parse(string(version))
		}
	}
	return release{}
}
