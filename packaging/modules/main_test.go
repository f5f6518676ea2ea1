package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadGathersLicences(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"LICENSE":                "Apache License\n   Version 2.0, January 2004",
		"NOTICE.md":              "Copyright",
		"license.go":             "package license",
		"LICENSE.docs":           "of the documents",
		"vendor/x/LICENSE":       "not linked in from here",
		"third_party/y/COPYING":  "Permission is hereby granted, free of\ncharge",
		"third_party/z/LICENCE.": "Permission is hereby granted, free of\ncharge",
	})
	m := module{path: "example.com/m"}
	if err := m.read(dir, true); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.files {
		names = append(names, f.name)
	}
	if diff := cmp.Diff([]string{"LICENSE", "NOTICE.md", "third_party/y/COPYING"}, names); diff != "" {
		t.Error(diff)
	}
	if m.license != "Apache-2.0 AND MIT" {
		t.Errorf("licence %q", m.license)
	}
}

func TestReadRefusesUnknownLicence(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"none":               {"NOTICE": "Copyright"},
		"unknown":            {"LICENSE": "Do as you like."},
		"unknown beside one": {"LICENSE": "Apache License, Version 2.0", "third_party/LICENSE": "Do as you like."},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, files)
		if err := (&module{path: "example.com/m"}).read(dir, true); err == nil {
			t.Errorf("%s: a licence that nobody knows was taken", name)
		}
	}
}
