package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// keptFile is a file in which lpuctl keeps what it must not forget.
type keptFile struct {
	path     string // below the root
	example  string // in the repository; "": it is the table of addresses
	good     string // a text that the example has once
	bad      string // what no program writes in its place
	commands string // that read the file, with commas between
}

// keptFiles are one of each kind that a command reads. dra-slices.json is read by lpuctl-dra serve only, which needs a cluster.
func keptFiles() []keptFile {
	const state = "var/lib/lpuctl/"
	return []keptFile{
		{"run/lpuctl/leases.json", "internal/lease/testdata/leases.json", `"last": 5`, `"last": 0`, "list -o wide, dra slices"},
		{state + "leases.json", "internal/lease/testdata/reservations.json", `"r2"`, `"r9"`, "list -o wide, dra slices"},
		{state + "cordon.json", "pkg/health/testdata/cordon.json", "0000:45:00.1", "lpu2", "list, list -o json, dra slices, uncordon lpu2"},
		{state + "health.json", "internal/node/testdata/health.json", `pu-0000-44-00-1": false`, `pu-0000-44-00-1": 0`, "health, list"},
		{state + "owner.json", "internal/owner/testdata/owner.json", `"dra"`, `"alice"`, "owner show, owner show -o json, owner set plugin"},
		{state + "last-ring.yaml", "", "0000:44:00.1", "0000:43:00.1", "list, topology"},
		{state + "dra-claims/2f0c1a9e-7b1d-4c55-9a53-0d6f1c2b3a4d.json", "internal/dra/claim/testdata/v1.json", `"completed"`, `"half"`,
			"dra claims, dra claims -o json, owner show, cdi validate"},
		{state + "runtime.json", "internal/runtimes/testdata/runtime.json", "300", "0", "runtime check --write-result"},
	}
}

// wrong is a way in which such a file breaks.
type wrong struct {
	name string
	make func(f keptFile, text, path string) error
}

func wrongs() []wrong {
	kind := regexp.MustCompile(`(kind"?: "?)\w+`)
	text := func(change func(f keptFile, text string) string) func(keptFile, string, string) error {
		return func(f keptFile, text, path string) error { return os.WriteFile(path, []byte(change(f, text)), 0o644) }
	}
	return []wrong{
		{"in order", text(func(_ keptFile, text string) string { return text })},
		{"cut off", text(func(_ keptFile, text string) string { return text[:len(text)*2/3] })},
		{"empty", text(func(keptFile, string) string { return "" })},
		{"newer", text(func(_ keptFile, text string) string {
			return strings.Replace(text, statefile.APIVersion, "lpuctl.hyperaccel.ai/v9", 1)
		})},
		{"of another kind", text(func(_ keptFile, text string) string { return kind.ReplaceAllString(text, "${1}Other") })},
		{"with a wrong value", text(func(f keptFile, text string) string { return strings.Replace(text, f.good, f.bad, 1) })},
		{"writable by all", func(_ keptFile, text, path string) error {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
			return os.Chmod(path, 0o666)
		}},
		{"a directory", func(_ keptFile, _, path string) error { return os.Mkdir(path, 0o755) }},
	}
}

// stateSteps are run on a node whose ring table is broken: each has one of the files, as it should be or broken.
func stateSteps() ([]step, error) {
	var s script
	s.run("cdi refresh")
	for _, f := range keptFiles() {
		example := []byte(addressTable)
		if f.example != "" {
			var err error
			if example, err = os.ReadFile(f.example); err != nil {
				return nil, err
			}
		}
		if strings.HasSuffix(f.example, "claim/testdata/v1.json") { // claims of another boot have ended; without one they count
			example = regexp.MustCompile(`"boot": ".*"`).ReplaceAll(example, []byte(`"boot": ""`))
		}
		for _, w := range wrongs() {
			for command := range strings.SplitSeq(f.commands, ", ") {
				s.run(command)
				last := &s[len(s)-1]
				last.about = strings.ReplaceAll(f.path, "/", "%") + " " + w.name
				last.before = func(dir string) error { return only(f, w, string(example), filepath.Join(dir, "NODE")) }
			}
		}
	}
	return onNode(s), nil
}

// only writes one of the files, and removes the others.
func only(f keptFile, w wrong, text, root string) error {
	for _, dir := range []string{"run/lpuctl/leases.json", "run/lpuctl/leases.json.bad", "var/lib/lpuctl"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	path := filepath.Join(root, f.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return w.make(f, text, path)
}
