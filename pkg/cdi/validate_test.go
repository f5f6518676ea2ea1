package cdi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	library "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/long"
)

// machine is a simulated server and a validator for it.
func machine(t *testing.T) (root string, v *cdi.Validator) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unwritten(cdi.SpecAndTables(host.Root(root), inv, cdi.Options{})); err != nil {
		t.Fatal(err)
	}
	return root, &cdi.Validator{Host: true, Root: host.Root(root), Kind: cdi.DefaultKind, Inventory: inv}
}

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func idsOf(findings finding.List) []string {
	ids := []string{}
	for _, f := range findings {
		ids = append(ids, string(f.ID))
	}
	return ids
}

// examples are the sections of docs/findings.md with their example files, "" where there is none.
func examples(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]string{}
	for _, section := range strings.Split(string(doc), "\n### ")[1:] {
		id, body, _ := strings.Cut(section, "\n")
		examples[id] = ""
		for line := range strings.SplitSeq(body, "\n") {
			if code, ok := strings.CutPrefix(line, "    "); ok {
				examples[id] += code + "\n"
			}
		}
	}
	return examples
}

// TestDocumentedExamples: each example of docs/findings.md yields the finding that it stands under, first.
func TestDocumentedExamples(t *testing.T) {
	_, v := machine(t)
	for id, text := range examples(t) {
		if text == "" {
			continue
		}
		if os.Getuid() != 0 && slices.Contains([]string{"node-missing", "node-not-device", "node-numbers"}, id) {
			t.Run(id, func(t *testing.T) { t.Skip("needs root: device nodes are made by root only") })
			continue
		}
		findings := v.File(put(t, filepath.Join(t.TempDir(), "spec.yaml"), text))
		found := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.ID == finding.ID(id) })
		if found < 0 {
			t.Errorf("%s: found %v", id, findings)
			continue
		}
		f := findings[found]
		if f.Message == "" || f.Remedy == "" || f.File == "" || f.Line == 0 && id != "spec-refused" {
			t.Errorf("%s: not all is said: %+v", id, f)
		}
	}
}

func TestOwnSpecIsClean(t *testing.T) {
	root, v := machine(t)
	spec, _, err := cdi.Spec(v.Inventory, cdi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	putInPlace(t, file, spec)
	findings, err := v.Dirs([]string{"/etc/cdi", cdi.DefaultSpecDir})
	if err != nil || len(findings) > 0 {
		t.Errorf("our own spec: %v %v", findings, err)
	}
	v.Targets = []cdi.Target{{Consumer: "podman", Release: "4.3.1", Newest: "0.5.0"}}
	if findings := v.File(file.Path); len(findings) > 0 {
		t.Errorf("for podman 4.3.1: %v", findings)
	}
}

const (
	good  = `{"cdiVersion": "0.3.0", "kind": "hyperaccel.ai/lpu", "devices": [{"name": "lpuX", "containerEdits": {"env": ["A=B"]}}]}`
	gpu   = `{"cdiVersion": "0.3.0", "kind": "example.com/gpu", "devices": [{"name": "0", "containerEdits": {}}]}`
	newer = `{"cdiVersion": "1.1.0", "kind": "hyperaccel.ai/lpu", "devices": [{"name": "x", "containerEdits": {"env": ["A=B"]}}]}`
)

func TestBetweenFiles(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing": {nil, []string{"no-spec"}},
		"two in one directory": {
			map[string]string{"/etc/cdi/a.json": good, "/etc/cdi/b.yaml": good},
			slices.Concat([]string{"other-file", "other-file", "conflict"}, slices.Repeat([]string{"device-missing"}, 8)),
		},
		"one above the other": {
			map[string]string{"/etc/cdi/a.json": good, "/var/run/cdi/b.json": good},
			slices.Concat([]string{"other-file", "other-file", "shadowed", "stale-device"}, slices.Repeat([]string{"device-missing"}, 8)),
		},
		"a file nobody reads": {map[string]string{"/etc/cdi/a.yml": good}, []string{"spec-yml", "no-spec"}},
		"of another kind":     {map[string]string{"/etc/cdi/gpu.json": gpu}, []string{"spec-version", "no-spec"}},
		"a crash of older runtimes": {
			map[string]string{"/etc/cdi/gpu.json": strings.Replace(good, "hyperaccel.ai/lpu", "e/gpu", 1)},
			[]string{"one-letter-name", "no-spec"},
		},
		"a crash": {
			map[string]string{"/etc/cdi/gpu.json": strings.Replace(gpu, `{}}`, `{"mounts": [null]}}`, 1)},
			[]string{"spec-crashes", "no-spec"},
		},
		"not for us":             {map[string]string{"/etc/cdi/README": "hello", "/etc/cdi/.tmp.json.swp": "{"}, []string{"no-spec"}},
		"ours by name, not JSON": {map[string]string{"/etc/cdi/hyperaccel.ai-lpu.json": "{"}, []string{"spec-syntax", "no-spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, v := machine(t)
			for path, text := range c.files {
				put(t, filepath.Join(root, path), text)
			}
			findings, err := v.Dirs([]string{"/etc/cdi", "/var/run/cdi"})
			if err != nil || !slices.Equal(idsOf(findings), append([]string{}, c.want...)) {
				t.Errorf("%v %v", findings, err)
			}
			if strings.Contains(name, "another kind") && findings[0].Severity != finding.Note {
				t.Errorf("another vendor's file: %v", findings)
			}
			if strings.HasPrefix(name, "a crash") && findings[0].Severity != finding.Error {
				t.Errorf("it takes everybody's devices away: %v", findings)
			}
		})
	}
}

func TestTargets(t *testing.T) {
	_, v := machine(t)
	path := put(t, filepath.Join(t.TempDir(), "spec.json"), newer)
	for newest, want := range map[string]string{
		"0.5.0":  "podman 4.3.1 loads cdiVersion 0.5.0 at most, not 1.1.0",
		"1.1.0":  "",
		"1.10.0": "",
		"":       "knows no CDI",
	} {
		v.Targets = []cdi.Target{{Consumer: "podman", Release: "4.3.1", Newest: newest}}
		got := ""
		for _, f := range v.File(path) {
			if f.ID == "target" {
				got = f.Message
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", newest, got, want)
		}
	}
}

func TestFIFO(t *testing.T) {
	root, v := machine(t)
	if err := os.MkdirAll(filepath.Join(root, "etc/cdi"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(root, "etc/cdi/other.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	findings, err := v.Dirs([]string{"/etc/cdi"})
	if err != nil || len(findings) == 0 || findings[0].ID != "spec-hangs" || findings[0].Severity != finding.Error {
		t.Errorf("%v %v", findings, err)
	}
}

func TestOddFiles(t *testing.T) {
	_, v := machine(t)
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"nothing":     func(string) error { return nil },
		"a dead link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if findings := v.File(path); len(findings) != 1 || findings[0].ID != "spec-unreadable" {
			t.Errorf("%s: %v", name, findings)
		}
	}
	own := filepath.Join(dir, "hyperaccel.ai-lpu.json")
	for remedy, make := range map[string]func(path string) error{ // refresh replaces neither
		"if it is empty: rm -d " + own + "; lpuctl cdi refresh": func(path string) error { return os.Mkdir(path, 0o755) },
		"rm " + own + "; lpuctl cdi refresh":                    func(path string) error { return os.Symlink("nowhere", path) },
	} {
		if err := errors.Join(os.RemoveAll(own), make(own)); err != nil {
			t.Fatal(err)
		}
		if findings := v.File(own); len(findings) != 1 || findings[0].Remedy != remedy {
			t.Errorf("in the place of our own: %v", findings)
		}
	}
	findings := v.File(put(t, filepath.Join(dir, "empty.json"), " \n"))
	if len(findings) != 1 || !strings.Contains(findings[0].Message, "empty") {
		t.Errorf("an empty file: %v", findings)
	}
	for _, text := range []string{"", "\x00", "[]", "null", "devices:", "{", "- -", "a: &a [*a]", strings.Repeat("[", 100000)} {
		if findings := v.File(put(t, filepath.Join(dir, "odd.json"), text)); !findings.HasErrors() {
			t.Errorf("%.20q: %v", text, findings)
		}
	}
}

// TestMutatedSpecs changes specs at random: nothing may crash, and nothing that the library refuses may be called valid.
func TestMutatedSpecs(t *testing.T) {
	count := long.Rounds(t, 1000)
	root, v := machine(t)
	spec, _, err := cdi.Spec(v.Inventory, cdi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec.Devices = spec.Devices[:3]
	own, err := cdi.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	seeds := [][]byte{own}
	for _, text := range examples(t) {
		seeds = append(seeds, []byte(text))
	}
	slices.SortFunc(seeds, func(a, b []byte) int { return strings.Compare(string(a), string(b)) })
	r := long.Rand(t)
	path := filepath.Join(root, "mutated.json")
	refused := 0
	for i := range count {
		data := mutate(r, slices.Clone(seeds[r.IntN(len(seeds))]), seeds)
		put(t, path, string(data))
		findings := v.File(path)
		if refuses(path) != nil {
			refused++
			if !findings.HasErrors() {
				t.Fatalf("mutation %d: the library says %v, we say %v, of\n%s", i, refuses(path), findings, data)
			}
		}
	}
	if refused < count/4 || refused == count {
		t.Errorf("the library refuses %d of %d: the mutations are no test", refused, count)
	}
}

// refuses is why the library does not take a file.
func refuses(path string) (err error) {
	defer func() {
		if crash := recover(); crash != nil {
			err = fmt.Errorf("it crashes: %v", crash)
		}
	}()
	_, err = library.ReadSpec(path, 0)
	return err
}

// mutate makes one to three changes: a byte, a run of bytes taken out or doubled, a word exchanged, a piece of another.
func mutate(r *rand.Rand, data []byte, seeds [][]byte) []byte {
	words := []string{
		"hostPath", "path", "0.3.0", "1.1.0", "env", "=", "/", "null", "{}", "[]", "-1", "\"", "lpu0", "additionalGids", "annotations",
		"name", "99999999999999999999", "\n", "  ",
	}
	for range 1 + r.IntN(3) {
		if len(data) == 0 {
			return data
		}
		at := r.IntN(len(data))
		to := min(len(data), at+1+r.IntN(20))
		switch r.IntN(5) {
		case 0:
			data[at] = byte(r.IntN(256))
		case 1:
			data = slices.Delete(data, at, to)
		case 2:
			data = slices.Insert(data, at, slices.Clone(data[at:to])...)
		case 3:
			data = slices.Insert(data, at, []byte(words[r.IntN(len(words))])...)
		case 4:
			other := seeds[r.IntN(len(seeds))]
			if len(other) > 0 {
				data = slices.Insert(data, at, other[r.IntN(len(other)):]...)
			}
		}
	}
	return data
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(newer))
	f.Add([]byte("cdiVersion: 0.5.0\nkind: a/b\ndevices: [{name: x, containerEdits: {hooks: [{timeout: 0}]}}]\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", os.Getpid()))
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		v := cdi.Validator{Host: true, Root: host.Root(dir), Kind: cdi.DefaultKind}
		findings := v.File(path)
		if err := refuses(path); err != nil && !findings.HasErrors() {
			t.Fatalf("the library says %v, we say %v", err, findings)
		}
	})
}
