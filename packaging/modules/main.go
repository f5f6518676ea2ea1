// modules tells of a Go program which modules it is made of, as its build information says: as a software bill of
// materials (CycloneDX), or as the notices that their licences want to be passed on.
//
// Usage: modules sbom|notices PROGRAM VERSION
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is a module that is linked in, or Go's standard library.
type module struct {
	path, version, sum string
	license            string // SPDX expression
	files              []licenseFile
}

type licenseFile struct {
	name string // in the module
	text []byte
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: modules sbom|notices PROGRAM VERSION")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, what, program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	modules, err := linked(info)
	if err != nil {
		return err
	}
	switch what {
	case "sbom":
		return writeSBOM(out, program, version, info, modules)
	case "notices":
		return writeNotices(out, modules)
	}
	return fmt.Errorf("%s: expected sbom or notices", what)
}

// linked finds the modules in the module cache, which has them, because the program was built of them.
func linked(info *buildinfo.BuildInfo) ([]module, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	std := module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}
	if err := std.read(strings.TrimSpace(string(goroot)), false); err != nil {
		return nil, err
	}
	modules := []module{std}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		m := module{path: d.Path, version: d.Version, sum: d.Sum}
		dir, err := locate(m)
		if err != nil {
			return nil, err
		}
		if err := m.read(dir, true); err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	return modules, nil
}

func locate(m module) (dir string, err error) {
	at := m.path + "@" + m.version
	data, err := exec.Command("go", "mod", "download", "-json", at).Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w", at, err)
	}
	var found struct{ Dir string }
	err = json.Unmarshal(data, &found)
	return found.Dir, err
}

// read gathers what the module says of its licence, at its top and, if deep, wherever it took over other code. A
// licence that is not known fails: somebody has to look at it before it is shipped.
func (m *module) read(dir string, deep bool) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != dir && (!deep || e.Name() == "testdata" || e.Name() == "vendor" || e.Name()[0] == '.') {
			return fs.SkipDir
		}
		if !e.Type().IsRegular() || !isLicenseFile(e.Name()) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(m.files, func(f licenseFile) bool { return bytes.Equal(f.text, text) }) {
			m.files = append(m.files, licenseFile{strings.TrimPrefix(path, dir+"/"), text})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.identify()
}

// isLicenseFile takes LICENSE.md and COPYING, but not license.go, nor LICENSE.docs, whose documents are not linked in.
func isLicenseFile(name string) bool {
	if ext := filepath.Ext(name); ext == ".go" || ext == ".docs" {
		return false
	}
	for _, stem := range []string{"license", "licence", "copying", "notice", "patents"} {
		rest, ok := strings.CutPrefix(strings.ToLower(name), stem)
		if ok && (rest == "" || strings.ContainsRune("-._", rune(rest[0]))) {
			return true
		}
	}
	return false
}

func (m *module) identify() error {
	var ids []string
	for _, f := range m.files {
		found := licensesIn(string(f.text))
		stem := strings.ToLower(filepath.Base(f.name))
		if len(found) == 0 && !strings.HasPrefix(stem, "notice") && !strings.HasPrefix(stem, "patents") {
			return fmt.Errorf("%s@%s: %s: no licence that is known", m.path, m.version, f.name)
		}
		for _, id := range found {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("%s@%s: no licence", m.path, m.version)
	}
	m.license = strings.Join(ids, " AND ")
	return nil
}

// licensesIn knows a licence by a sentence that every copy of it has.
func licensesIn(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(part string) bool { return strings.Contains(text, part) }
	var ids []string
	if has("Apache License, Version 2.0") || has("Apache License Version 2.0") {
		ids = append(ids, "Apache-2.0")
	}
	if has("Permission is hereby granted, free of charge") {
		ids = append(ids, "MIT")
	}
	if has("Redistribution and use in source and binary forms") {
		if has("to endorse or promote products") {
			ids = append(ids, "BSD-3-Clause")
		} else {
			ids = append(ids, "BSD-2-Clause")
		}
	}
	if has("Permission to use, copy, modify, and/or distribute") || has("Permission to use, copy, modify, and distribute") {
		ids = append(ids, "ISC")
	}
	if has("Mozilla Public License Version 2.0") {
		ids = append(ids, "MPL-2.0")
	}
	return ids
}

func writeNotices(out io.Writer, modules []module) error {
	var b bytes.Buffer
	b.WriteString("This program is linked with these modules, whose licences follow. The source of each is had by its path and\n" +
		"version: go mod download PATH@VERSION.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "  %s %s (%s)\n", m.path, m.version, m.license)
	}
	for _, m := range modules {
		for _, f := range m.files {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%[1]s\n\n%[5]s\n", strings.Repeat("-", 80), m.path, m.version, f.name, bytes.TrimSpace(f.text))
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}
