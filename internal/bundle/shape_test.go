package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
	"github.com/hyperaccel/lpuctl/test/plant"
)

const planted = "s3cr3tQz7"

// brokenTexts are files that cannot be parsed, by names of what is wrong. Each has a secret.
func brokenTexts() map[string]string {
	return map[string]string{
		"an open bracket":      "cdiVersion: 0.6.0\nkind: hyperaccel.ai/lpu\ndevices: [" + planted + "\n",
		"a tab":                "kind: hyperaccel.ai/lpu\ncontainerEdits:\n\tenv: " + planted + "\n",
		"two colons":           "kind: x\nenv: password: " + planted + "\nname: y\n",
		"an open quote":        "kind: \"" + planted + "\nname: y\n",
		"an unknown escape":    "a: 1\nkind: \"\\q" + planted + "\"\n",
		"an unknown anchor":    "a: 1\nb: *" + planted + "\n",
		"a list in a mapping":  "a: 1\n- " + planted + "\nb: 2\n",
		"less indented":        "a:\n    b: 1\n  c: " + planted + "\n",
		"a directive":          "%FOO " + planted + "\nkind: [\n",
		"a reserved character": "a: @" + planted + "\n",
		"JSON cut":             "{\n \"kind\": \"" + planted + "\",\n \"devices\": [",
		"JSON without quotes":  "{\n \"on\": true, \"n\": -10.5e3, \"u\": \"\\u12ab\",\n \"kind\": " + planted + "\n}",
		"JSON without a comma": "{\n \"kind\": \"x\"\n \"name\": \"" + planted + "\"\n}",
		"JSON with a comma":    "{\"kind\": \"" + planted + "\",\n}",
		"JSON and more":        "{\"kind\": \"x\"}\n" + planted + "\n",
		"JSON half a word":     "{\"on\": trve, \"x\": \"" + planted + "\"}",
		"JSON in a word":       "{\"on\": null" + planted + "}",
		"JSON, a bad escape":   "{\"on\": \"\\z" + planted + "\"}",
		"not UTF-8":            "kind: caf\xe9 " + planted + "\n",
		"half of UTF-8":        "kind: " + planted + " \xc3",
		"a control character":  "kind: \x01" + planted + "\n",
		"binary":               "\x00\x01\xff\xfe" + planted + "\x80\x81",
		"nothing but words":    planted + ": x\n" + planted,
		"a line of Unicode":    "a: ü\u2028b: [ü" + planted + "\n",
	}
}

// TestShape: what lpuctl says of a file that cannot be parsed it says of its shape, which has no secret.
func TestShape(t *testing.T) {
	spec := func(p string, data []byte) string {
		root := t.TempDir()
		name := filepath.Join(root, "etc/cdi", filepath.Base(p))
		plant.File(t, name, string(data))
		v := cdi.Validator{Root: host.Root(root), Kind: cdi.DefaultKind}
		return said(v.File(name), root)
	}
	own := func(_ string, data []byte) string {
		_, faults := strictyaml.Decode(data, new(struct {
			Kind string `json:"kind"`
		}))
		return fmt.Sprint(faults)
	}
	table := func(p string, data []byte) string {
		_, findings := ring.Parse(p, data)
		return said(findings, "")
	}
	state := func(_ string, data []byte) string { return fmt.Sprint(json.Unmarshal(data, new(statefile.Header))) }
	for name, text := range brokenTexts() {
		for _, reader := range []struct {
			path string
			by   redactor
			says func(string, []byte) string
		}{
			{"/etc/cdi/x.yaml", redactSpec, spec},
			{"/etc/cdi/x.json", redactSpec, spec},
			{"/etc/lpuctl/config.yaml", redactOwn([]string{"kind"}), own},
			{"/etc/lpuctl/ring.yaml", redactTable, table},
			{"/etc/lpuctl/ring.json", redactTable, table},
			{"/var/lib/lpuctl/cordon.json", redactState, state},
		} {
			out, err := reader.by(reader.path, []byte(text), NewNames(nil, nil))
			if err != nil {
				out, err = shaped(reader.path, []byte(text), []string{cdi.DefaultKind})
			} else if bytes.Contains(out, []byte(planted)) {
				continue // it can be parsed, and what is kept of that is tested elsewhere
			}
			if err != nil {
				t.Errorf("%s in %s: %v", name, reader.path, err)
				continue
			}
			blank := func(s string) string { return quoted.ReplaceAllString(s, "''") }
			if want, have := reader.says(reader.path, []byte(text)), reader.says(reader.path, out); blank(have) != blank(want) {
				t.Errorf("%s in %s: it is said\n%s\nof the shape\n%s\nand of the file\n%s", name, reader.path, have, out, want)
			}
			if bytes.Contains(out, []byte(planted)) || bytes.Contains(out, []byte(planted[:3])) {
				t.Errorf("%s in %s: the secret is in it: %q", name, reader.path, out)
			}
		}
	}
	const toml = "[plugins]\nenable_cdi = tru " + planted + "\n"
	if out, err := shaped("/etc/containerd/config.toml", []byte(toml), nil); err != nil || bytes.Contains(out, []byte(planted)) {
		t.Errorf("TOML: %q, %v", out, err)
	}
}

// said are findings as texts, with paths as below "/".
func said(all finding.List, root string) string {
	text, _ := json.Marshal(all)
	return strings.ReplaceAll(string(text), root, "")
}

// TestShapeStays: a kind of devices is no secret, and a text that can be parsed has no shape.
func TestShapeStays(t *testing.T) {
	out, err := shaped("/x.yaml", []byte("kind: hyperaccel.ai/lpu\nx: [\n"), []string{"hyperaccel.ai/lpu"})
	if err != nil || !bytes.Contains(out, []byte("hyperaccel.ai/lpu")) {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := shaped("/x.yaml", []byte("kind: x\n"), nil); err == nil {
		t.Errorf("%q", out)
	}
}

// TestTooLarge: of a file that no reader takes the size is in a bundle, and that of a long one stays.
func TestTooLarge(t *testing.T) {
	root := t.TempDir()
	const long = 300 << 10
	plant.File(t, filepath.Join(root, "etc/lpuctl/config.yaml"), strings.Repeat("x", EntryMax+1))
	plant.File(t, filepath.Join(root, "etc/cdi/x.yaml"), "kind: x\n"+strings.Repeat("# a comment\n", long/12))
	c := NewCollector(host.Root(root), NewNames(nil, nil))
	c.Own("/etc/lpuctl/config.yaml", nil)
	c.Specs("/etc/cdi", EntryMax)
	b := c.Bundle(Index{})
	dir := t.TempDir()
	if _, err := b.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"etc/lpuctl/config.yaml": EntryMax + 1, "etc/cdi/x.yaml": long} {
		if have := int64(len(readFile(t, filepath.Join(dir, name)))); have < size {
			t.Errorf("%s has %d bytes, and had %d", name, have, size)
		}
	}
	if e := b.Entries["root/etc/lpuctl/config.yaml"]; e == nil || len(e.Data) > 0 {
		t.Error(e)
	}
}
