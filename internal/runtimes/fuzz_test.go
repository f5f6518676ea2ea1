package runtimes

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/versions"
)

// Whatever a config holds, each release line has a verdict on it, what is found lies within the file, and where CDI is
// off there is a cause with a remedy.
func FuzzContainerdConfig(f *testing.F) {
	archives, err := filepath.Glob("testdata/containerd/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files[:len(archive.Files)-1] {
			f.Add(file.Data)
		}
	}
	for _, seed := range []string{
		"a = {b = {c = [{d = \"e\"}]}}\r\n",
		"[[plugins.cri]]\n[plugins.cri.x]\n",
		"plugins.cri = {enable_cdi = [\n\n]}",
		"\"\".\"\" = \"\"\n",
		"x = '''\n\n'''\ny = [\"\"\"\n\"\"\"]\n",
	} {
		f.Add([]byte(seed))
	}
	releases := []release{{}}
	for _, version := range []string{"1.6.20", "1.7.0", "1.7.35", "2.2.9", "2.3.0", "2.3.7", "2.4.2"} {
		releases = append(releases, versions.Parse(version))
	}
	c := &checker{machine: machine{host.Root(os.DevNull)}, Options: Options{SpecDir: "/var/run/cdi"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseTOML(data)
		if err != nil {
			return
		}
		lines := strings.Count(string(data), "\n") + 1
		for path, line := range d.lines {
			if line < 1 || line > lines {
				t.Fatalf("%q is on line %d of %d", path, line, lines)
			}
		}
		file, err := newConfigFile(d)
		if err != nil {
			return
		}
		for _, r := range releases {
			v := (&config{installation: standardContainerd(), main: containerdConfig, files: []*configFile{file}}).evaluate(r, false)
			v.wanted = true
			runtime := newRuntime("containerd")
			runtime.fromFiles(v)
			runtime.addCauses(nil, v)
			c.checkSpecDirs(runtime, nil, v)
			v.reportIgnored(runtime)
			for _, f := range runtime.Findings {
				if f.Line < 0 || f.Line > lines || f.Message == "" || f.Remedy == "" {
					t.Errorf("containerd %s: %+v", r.Text, f)
				}
			}
			if (runtime.CDI == Off || runtime.CDI == Unsupported) && len(findings(runtime)) == 0 {
				t.Errorf("containerd %s: CDI is %s and nothing says why", r.Text, runtime.CDI)
			}
		}
	})
}

// Whatever a result holds, it is refused or gives an answer, which has a reason and a remedy unless it is on; and it is written as it was
// read.
func FuzzParseResult(f *testing.F) {
	for _, state := range []State{On, Off, Unknown} {
		text, err := json.Marshal(checked(state))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, int64(noon.SinceBoot))
		f.Add(text[:len(text)/2], int64(0))
	}
	f.Add([]byte(`{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","kind":"RuntimeResult","boot":"b00t","periodSeconds":86400}`), int64(1)<<62)
	f.Fuzz(func(t *testing.T, data []byte, sinceBoot int64) {
		r, err := resultFile("").Parse(data)
		if err != nil {
			return
		}
		a := r.Answer(host.Moment{Boot: noon.Boot, SinceBoot: time.Duration(sinceBoot)})
		if (a.CDI == On) != (a.Reason == nil) || a.Reason != nil && (a.Reason.Message == "" || a.Reason.Remedy == "") {
			t.Errorf("the answer is %+v", a)
		}
		if a.CDI != Unknown && (r.Runtime == nil || r.Boot != noon.Boot || int64(r.SinceBoot) > sinceBoot) {
			t.Errorf("%s is answered by %s", a.CDI, data)
		}
		text, err := json.Marshal(r)
		if err != nil {
			return // a year that JSON has no form for
		}
		again, err := resultFile("").Parse(text)
		if err != nil {
			t.Fatalf("%s is written as %s: %v", data, text, err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(second, text) {
			t.Errorf("%s is written as %s, %v", text, second, err)
		}
	})
}
