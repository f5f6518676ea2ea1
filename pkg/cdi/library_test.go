package cdi_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// verdicts are what is found in testdata/library/NAME.yaml if no release is named, for podman 4.3.1 and for containerd 2.4.0; "" is
// nothing.
type verdicts struct {
	line                int // of the finding; 0: none
	any, podman, newest finding.ID
}

// TestLibraries: the newest library decides what is refused; where releases are named, theirs. test/e2e holds the same files against
// the libraries themselves.
func TestLibraries(t *testing.T) {
	const old, target, refused = finding.OlderLibrary, finding.Target, finding.SpecRefused
	want := map[string]verdicts{
		"alias": {}, "byte-order-mark": {}, "good": {}, "merge-key": {}, "mount-type": {}, "number-as-name": {}, "nulls": {},
		"version-v0.5.0": {}, "whole-float": {},

		"empty-device":         {3, old, target, ""},
		"empty-variable":       {3, old, target, ""},
		"half-float":           {0, old, target, ""},
		"hexadecimal-name":     {3, old, target, ""},
		"merge-key-overridden": {5, old, target, ""},
		"permissions-none":     {3, old, target, ""},
		"yes-as-name":          {3, old, target, ""},
		"one-letter-class":     {2, finding.OneLetterName, finding.OneLetterName, ""},
		"one-letter-vendor":    {2, finding.OneLetterName, finding.OneLetterName, ""},
		"annotations":          {1, "", target, ""},
		"dot-in-class-0.6.0":   {1, "", target, ""},

		"key-case":   {1, finding.SpecUnknownKey, "", finding.SpecUnknownKey},
		"no-devices": {3, refused, "", refused},
	}
	for id, names := range map[finding.ID][]string{
		refused: {
			"bad-kind 2", "duplicate-device 3", "empty-edits 3", "null-name 3", "permissions-unknown 3", "unknown-hook 3",
		},
		finding.SpecSecond:     {"second-document 2", "text-behind 1"},
		finding.SpecSyntax:     {"duplicate-key 3", "negative-uid 3", "number-in-quotes 3"},
		finding.SpecUnknownKey: {"unknown-key 3"},
		finding.SpecCrashes:    {"empty-node 3"},
		finding.SpecVersion: {
			"digit-in-0.3.0 1", "dot-in-class-0.5.0 1", "gids-in-0.5.0 1", "version-0.0.0 1", "version-0.2.0 1", "version-float 1",
		},
	} {
		for _, name := range names {
			name, line, _ := strings.Cut(name, " ")
			want[name] = verdicts{int(line[0] - '0'), id, id, id}
		}
	}
	files, err := filepath.Glob("testdata/library/*.yaml")
	if err != nil || len(files) != len(want) {
		t.Errorf("%d files, want %d: %v", len(files), len(want), err)
	}
	podman := cdi.Target{Consumer: "podman", Release: "4.3.1", Newest: "0.5.0"}
	containerd := cdi.Target{Consumer: "containerd", Release: "2.4.0", Newest: "1.1.0", Library: "1.1.1"}
	for name, w := range want {
		check := func(id finding.ID, targets ...cdi.Target) {
			v := cdi.Validator{Kind: cdi.DefaultKind, Targets: targets}
			ids := []string{}
			if id != "" {
				ids = []string{string(id)}
			}
			findings := v.File(filepath.Join("testdata/library", name+".yaml"))
			if !slices.Equal(slices.Compact(idsOf(findings)), ids) || len(findings) > 0 && findings[0].Line != w.line {
				t.Errorf("%s for %v: %v, want %v in line %d", name, targets, findings, ids, w.line)
			}
		}
		check(w.any)
		check(w.podman, podman)
		check(w.newest, containerd)
	}
}

// TestHarmless: what the library reads without an error is not blamed where it refuses the file for something else.
func TestHarmless(t *testing.T) {
	text := "cdiVersion: 0.5.0\nkind: a.com/xx\ncolour: red\n" +
		"devices: [{name: 0, containerEdits: &e {env: [A=B]}}, {name: 1, containerEdits: *e}]\n"
	v := cdi.Validator{Kind: cdi.DefaultKind}
	findings := v.File(put(t, filepath.Join(t.TempDir(), "spec.yaml"), text))
	if len(findings) != 1 || findings[0].ID != finding.SpecUnknownKey || findings[0].Line != 3 {
		t.Errorf("%v", findings)
	}
}

// TestUnknownVersion: a version that never was is not too low.
func TestUnknownVersion(t *testing.T) {
	v := cdi.Validator{Kind: cdi.DefaultKind}
	for name, want := range map[string]string{
		"version-0.0.0": `cdiVersion "0.0.0" is not known`,
		"version-0.2.0": `it says cdiVersion "0.2.0" and uses what came with 0.3.0`,
	} {
		if findings := v.File("testdata/library/" + name + ".yaml"); len(findings) != 1 || !strings.HasPrefix(findings[0].Message, want) {
			t.Errorf("%s: %v", name, findings)
		}
	}
}
