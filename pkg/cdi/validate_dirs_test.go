package cdi_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// carryOut runs a remedy of the forms "rm A", "chmod M A", "rm A; mv B A": what follows "lpuctl" is left to its own tests.
func carryOut(t *testing.T, remedy string) {
	t.Helper()
	if i := strings.LastIndex(remedy, ": "); i >= 0 {
		remedy = remedy[i+2:]
	}
	for command := range strings.SplitSeq(remedy, "; ") {
		words := strings.Fields(command)
		var err error
		switch words[0] {
		case "rm":
			err = os.Remove(words[1])
		case "mkdir":
			err = os.Mkdir(words[3], 0o755)
		case "mv":
			err = os.Rename(words[1], words[2])
		case "chmod":
			err = os.Chmod(words[2], 0o755)
		case "lpuctl":
		default:
			t.Fatalf("remedy %q", remedy)
		}
		if err != nil {
			t.Fatalf("remedy %q: %v", remedy, err)
		}
	}
}

// A spec directory that is a link to the other one: the remedy leaves the specs of others where
// they are, because only one of the two outlasts a boot.
func TestLinkToTheOtherDirectory(t *testing.T) {
	for link, target := range map[string]string{"/var/run/cdi": "/etc/cdi", "/etc/cdi": "/var/run/cdi"} {
		own, v := refreshed(t)
		real, other := filepath.Join(string(v.Root), target), filepath.Join(string(v.Root), target, "vendor.json")
		if err := os.MkdirAll(filepath.Dir(real), 0o755); err != nil {
			t.Fatal(err)
		}
		if link == "/var/run/cdi" {
			if err := os.Rename(filepath.Dir(own), real); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(other, []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
		typed := filepath.Join(string(v.Root), link)
		if err := os.MkdirAll(filepath.Dir(typed), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, typed); err != nil {
			t.Fatal(err)
		}
		v.Targets = nil
		findings, err := v.CheckDirs([]string{link})
		if err != nil || len(findings) != 1 || findings[0].ID != finding.SpecDirLink {
			t.Fatalf("%s: %v %v", link, findings, err)
		}
		if findings, err := v.Dirs(bothDirs); err != nil || slices.Contains(idsOf(findings), "spec-dir-link") {
			t.Errorf("%s, which runtimes find by its other name: %v %v", link, findings, err)
		}
		carryOut(t, findings[0].Remedy)
		if findings, err := v.CheckDirs([]string{link}); err != nil || len(findings) > 0 {
			t.Errorf("%s: %v %v", link, findings, err)
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("%s: the spec of another vendor was moved: %v", link, err)
		}
		if _, err := os.Stat(filepath.Join(typed, filepath.Base(own))); err != nil {
			t.Errorf("%s: our spec was not moved: %v", link, err)
		}
	}
}

// TestLinkedDirectory: libraries up to 1.1.0 do not follow a spec directory that is a link.
func TestLinkedDirectory(t *testing.T) {
	own, v := refreshed(t)
	dir := filepath.Dir(own)
	moved := filepath.Join(string(v.Root), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/moved", dir); err != nil {
		t.Fatal(err)
	}
	v.Own = filepath.Join(moved, filepath.Base(own))
	for name, c := range map[string]struct {
		target cdi.Target
		want   []string
	}{
		"nobody":     {cdi.Target{}, []string{"spec-dir-link"}},
		"podman":     {cdi.Target{Consumer: "podman", Release: "4.3.1", Newest: "0.5.0"}, []string{"target"}},
		"containerd": {cdi.Target{Consumer: "containerd", Release: "2.4.0", Newest: "1.1.0", Library: "1.1.1"}, []string{}},
	} {
		v.Targets = []cdi.Target{c.target}
		if name == "nobody" {
			v.Targets = nil
		}
		if findings, err := v.Dirs(bothDirs); err != nil || !slices.Equal(idsOf(findings), c.want) {
			t.Errorf("%s: %v %v", name, findings, err)
		}
	}
	v.Targets = nil
	findings, err := v.CheckDirs(bothDirs)
	if err != nil || len(findings) != 1 || findings[0].Subject != dir {
		t.Fatalf("%v %v", findings, err)
	}
	carryOut(t, findings[0].Remedy)
	v.Own = own
	if findings, err := v.Dirs(bothDirs); err != nil || len(findings) > 0 {
		t.Errorf("afterwards: %v %v", findings, err)
	}
}

// TestOneDirectoryTwice: where one spec directory leads to the other every library reads all, and nothing is to be removed.
func TestOneDirectoryTwice(t *testing.T) {
	own, v := refreshed(t)
	dir := filepath.Dir(own)
	moved := filepath.Join(string(v.Root), "etc/cdi")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	v.Own = filepath.Join(moved, filepath.Base(own))
	for _, link := range []string{dir, filepath.Dir(dir)} { // var/run/cdi, then var/run
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		target := "/etc"
		if link == dir {
			target = "/etc/cdi"
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if findings, err := v.Dirs(bothDirs); err != nil || len(findings) > 0 {
			t.Errorf("%s: %v %v", link, findings, err)
		}
	}
}

// TestOneFileTwice: a file that is a link to the other is the same file.
func TestOneFileTwice(t *testing.T) {
	own, v := refreshed(t)
	other := filepath.Join(string(v.Root), "etc/cdi", filepath.Base(own))
	if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(own, other); err != nil {
		t.Fatal(err)
	}
	findings, err := v.Dirs(bothDirs)
	if err != nil || !slices.Equal(idsOf(findings), []string{"other-file"}) {
		t.Errorf("%v %v", findings, err)
	}
}

// TestDirectoryMode: a directory that only root can read is empty for the others.
func TestDirectoryMode(t *testing.T) {
	own, v := refreshed(t)
	for _, mode := range []os.FileMode{0o700, 0o754, 0o711} {
		if err := os.Chmod(filepath.Dir(own), mode); err != nil {
			t.Fatal(err)
		}
		findings, err := v.Dirs(bothDirs)
		if err != nil || !slices.Equal(idsOf(findings), []string{"spec-dir-mode"}) {
			t.Fatalf("%o: %v %v", mode, findings, err)
		}
		carryOut(t, findings[0].Remedy)
		if findings, err := v.Dirs(bothDirs); err != nil || len(findings) > 0 {
			t.Errorf("afterwards: %v %v", findings, err)
		}
	}
}

// TestDirectoryThatNobodyReads: only what a runtime reads counts, and only where it is known.
func TestDirectoryThatNobodyReads(t *testing.T) {
	_, v := refreshed(t)
	for _, c := range []struct {
		read []string
		want []string
	}{
		{nil, []string{}},
		{[]string{"/etc/cdi", "/var/run/cdi"}, []string{}},
		{[]string{"/etc/cdi", "/run/cdi"}, []string{"spec-dir-unread"}},
		{[]string{}, []string{"spec-dir-unread"}},
	} {
		v.Orders = nil
		if c.read != nil {
			v.Orders = []cdi.Order{{Runtime: "containerd", Dirs: c.read}}
		}
		findings, err := v.Dirs(bothDirs)
		if err != nil || !slices.Equal(idsOf(findings), c.want) {
			t.Errorf("%v: %v %v", c.read, findings, err)
		}
		if findings, err := v.CheckDirs(bothDirs); err != nil || !slices.Equal(idsOf(findings), c.want) {
			t.Errorf("the directories only, %v: %v %v", c.read, findings, err)
		}
	}
}

// TestOtherFiles: the remedies of files that are not ours do not count on refresh, and can be carried out.
func TestOtherFiles(t *testing.T) {
	own, v := refreshed(t)
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	copied := put(t, filepath.Join(filepath.Dir(own), "copy.json"), string(data))
	findings, err := v.Dirs(bothDirs)
	i := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.ID == finding.SpecConflict })
	if err != nil || i < 0 || findings[i].Remedy != "remove one of the two: rm "+copied {
		t.Fatalf("%v %v", findings, err)
	}
	carryOut(t, findings[i].Remedy)
	old := put(t, filepath.Join(string(v.Root), "etc/cdi/old.json"), strings.ReplaceAll(string(data), "renderD", "renderX"))
	findings, err = v.Dirs(bothDirs)
	i = slices.IndexFunc(findings, func(f finding.Finding) bool { return f.ID == finding.Shadowed })
	if err != nil || i < 0 || findings[i].Remedy != "if it is a leftover: rm "+old {
		t.Fatalf("%v %v", findings, err)
	}
	if slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.ID == finding.NodeWrong }) {
		t.Errorf("no container gets these nodes: %v", findings)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	findings, err = v.Dirs(bothDirs)
	i = slices.IndexFunc(findings, func(f finding.Finding) bool { return f.ID == finding.NodeWrong })
	if err != nil || i < 0 || findings[i].Remedy != "rm "+old+"; lpuctl cdi refresh" {
		t.Fatalf("%v %v", findings, err)
	}
}

// TestForeignKind: another kind's maker mends its file, and not lpuctl.
func TestForeignKind(t *testing.T) {
	_, v := machine(t)
	text := strings.NewReplacer("hyperaccel.ai/lpu", "example.com/gpu", `"env": ["A=B"]`,
		`"mounts": [{"hostPath": "/no/such", "containerPath": "/x"}]`).Replace(good)
	findings := v.File(put(t, filepath.Join(t.TempDir(), "gpu.yaml"), text))
	if len(findings) != 1 || findings[0].ID != finding.MountMissing || strings.Contains(findings[0].Remedy, "refresh") {
		t.Errorf("%+v", findings)
	}
}

// TestClash: a second file with our names in one directory takes the devices from everybody, whichever library reads it.
func TestClash(t *testing.T) {
	own, v := refreshed(t)
	spec, _, err := cdi.Spec(v.Inventory, cdi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cdi.Clash(filepath.Join(filepath.Dir(own), "other.yaml"), spec); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{own, filepath.Join(string(v.Root), "etc/cdi/other.yaml"), filepath.Join(t.TempDir(), "other.yaml")} {
		if err := cdi.Clash(path, spec); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	put(t, own, strings.Replace(string(data), `"kind"`, `"Kind"`, 1)) // what libraries up to 1.1.0 take
	if err := cdi.Clash(filepath.Join(filepath.Dir(own), "other.yaml"), spec); err == nil {
		t.Error("keys in another case hide a file")
	}
}
