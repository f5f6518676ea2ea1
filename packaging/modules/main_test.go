package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadGathersLicences(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE":                "Apache License\n   Version 2.0, January 2004",
		"NOTICE.md":              "Copyright",
		"license.go":             "package license",
		"vendor/x/LICENSE":       "not linked in from here",
		"third_party/y/COPYING":  "Permission is hereby granted, free of\ncharge",
		"third_party/z/LICENCE.": "Permission is hereby granted, free of\ncharge",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("Do as you like."), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&module{path: "example.com/m"}).read(dir, true); err == nil {
		t.Error("a licence that nobody knows was taken")
	}
}
