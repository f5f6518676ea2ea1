package cdi_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// TestLibraries: the newest library decides what is refused, older ones where releases are named. test/e2e holds the same against
// the libraries themselves.
func TestLibraries(t *testing.T) {
	const edits = "containerEdits: {env: [A=B]}"
	one := func(device string) string { return "{cdiVersion: 0.5.0, kind: a.com/xx, devices: [" + device + "]}" }
	old := cdi.Target{Consumer: "podman", Release: "4.3.1", Newest: "0.5.0"}
	newest := cdi.Target{Consumer: "containerd", Release: "2.4.0", Newest: "1.1.0", Library: "1.1.1"}
	for name, c := range map[string]struct {
		text              string
		any, atOld, atNew string // the finding without a target, of podman 4.3.1, of containerd 2.4.0; "" is none
		line              int
	}{
		"alias": {text: "cdiVersion: 0.5.0\nkind: a.com/xx\ndevices:\n- {name: d, containerEdits: &e {env: [A=B]}}\n- {name: f, containerEdits: *e}\n"},
		"merge key": {text: "cdiVersion: 0.5.0\nkind: a.com/xx\ncontainerEdits: {deviceNodes: [&n {path: /dev/null, permissions: r}]}\n" +
			"devices:\n- {name: d, containerEdits: {deviceNodes: [{<<: *n}]}}\n"},
		"merge key that is overridden": {
			"cdiVersion: 0.5.0\nkind: a.com/xx\ncontainerEdits: {deviceNodes: [&n {path: /dev/null}]}\n" +
				"devices:\n- {name: d, containerEdits: {deviceNodes: [{<<: *n, path: /dev/zero}]}}\n", "older-library", "target", "", 5,
		},
		"number for a name":    {text: one("{name: 0, " + edits + "}")},
		"nulls":                {text: one("{name: d, containerEdits: {deviceNodes: [{path: /dev/null, hostPath: null, uid: null, gid: null, fileMode: null}]}}")},
		"whole float":          {text: one("{name: d, containerEdits: {deviceNodes: [{path: /dev/null, type: c, major: 1.0, minor: 3}]}}")},
		"text behind":          {one("{name: d, "+edits+"}") + "\nmore\n", "spec-second-document", "spec-second-document", "spec-second-document", 1},
		"yes":                  {one("{name: yes, " + edits + "}"), "older-library", "target", "", 1},
		"hexadecimal":          {one("{name: 0x10, " + edits + "}"), "older-library", "target", "", 1},
		"half a number":        {one("{name: d, containerEdits: {deviceNodes: [{path: /dev/null, major: 1.5}]}}"), "older-library", "target", "", 0},
		"empty item":           {one("null, {name: d, " + edits + "}"), "older-library", "target", "", 1},
		"no permissions":       {one("{name: d, containerEdits: {deviceNodes: [{path: /dev/null, permissions: none}]}}"), "older-library", "target", "", 1},
		"keys in another case": {one("{Name: d, " + edits + "}"), "spec-unknown-key", "", "spec-unknown-key", 1},
		"unknown key":          {one("{name: d, colour: red, " + edits + "}"), "spec-unknown-key", "spec-unknown-key", "spec-unknown-key", 1},
		"no devices":           {one(""), "spec-refused", "", "spec-refused", 0},
		"empty device":         {one("{name: d, containerEdits: {}}"), "spec-refused", "spec-refused", "spec-refused", 1},
		"twice":                {one("{name: d, " + edits + "}, {name: d, " + edits + "}"), "spec-refused", "spec-refused", "spec-refused", 1},
		"one letter":           {"{cdiVersion: 0.5.0, kind: a.com/x, devices: [{name: d, " + edits + "}]}", "one-letter-name", "target", "", 1},
		"bad kind":             {"cdiVersion: 0.5.0\nkind: a b\ndevices: [{name: d, " + edits + "}]\n", "spec-refused", "spec-refused", "spec-refused", 2},
		"0.0.0":                {"{cdiVersion: 0.0.0, kind: a.com/xx, devices: [{name: d, " + edits + "}]}", "spec-version", "spec-version", "spec-version", 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := put(t, filepath.Join(t.TempDir(), "spec.yaml"), c.text)
			for want, targets := range map[*string][]cdi.Target{&c.any: nil, &c.atOld: {old}, &c.atNew: {newest}} {
				v := cdi.Validator{Kind: cdi.DefaultKind, Targets: targets}
				findings, ids := v.File(path), []string{}
				if *want != "" {
					ids = []string{*want}
				}
				if !slices.Equal(idsOf(findings), ids) || len(findings) > 0 && findings[0].Line != c.line {
					t.Errorf("%v: %v, want %v in line %d", targets, findings, ids, c.line)
				}
			}
		})
	}
}
