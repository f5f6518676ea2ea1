package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/plant"
)

const period = 5 * time.Minute

// noon is a moment of a boot.
var noon = host.Moment{Boot: "b00t", SinceBoot: 12 * time.Hour}

// later is a moment of the same boot.
func later(d time.Duration) host.Moment {
	return host.Moment{Boot: noon.Boot, SinceBoot: noon.SinceBoot + d}
}

// checked is the result of a check at noon that found containerd in a state.
func checked(state State) *Result {
	r := Runtime{Name: "containerd", Version: "1.7.35", CDI: state, AfterRestart: state, UsedByKubelet: true}
	r.Findings.Add(finding.CDISource, "containerd", "the running daemon says so", "")
	if state != On {
		r.Findings.Add(finding.CDIOff, "containerd", "why it is "+string(state), "what to do")
	}
	return NewResult([]Runtime{{Name: "docker", CDI: On}, r}, noon, period)
}

// TestUsedByKubelet: the result is about that one, and about none where that is not known.
func TestUsedByKubelet(t *testing.T) {
	const config, crioConfig = "var/lib/kubelet/config.yaml", "etc/crio/crio.conf"
	const own, endpoint = "/run/own/containerd.sock", "containerRuntimeEndpoint: unix://"
	kubelet := map[string]string{config: "kind: KubeletConfiguration\n"}
	for name, test := range map[string]struct {
		files   map[string]string
		sockets []string // of containerds that have CDI off
		want    string   // name and state; "": none
	}{
		"no kubelet": {nil, []string{containerdSocket}, ""},
		"a kubelet":  {kubelet, []string{containerdSocket}, "containerd off"},
		"own":        {map[string]string{config: endpoint + own + "\n"}, []string{containerdSocket, own}, "containerd off"},
		"CRI-O": {map[string]string{
			config: "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", crioConfig: "[crio]\n", "usr/bin/crio": "",
			"var/lib/dpkg/status": "Package: cri-o\nStatus: install ok installed\nVersion: 1.30.0-1\n",
		}, []string{containerdSocket}, "cri-o on"},
		"Docker":               {map[string]string{config: endpoint + "/run/cri-dockerd.sock\n"}, []string{containerdSocket}, ""},
		"k3s":                  {nil, []string{containerdSocket, k3s().socket}, "k3s off"},
		"a kubelet beside k3s": {kubelet, []string{containerdSocket, k3s().socket}, "containerd off"},
		"does not run":         {kubelet, nil, "containerd unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			for _, socket := range test.sockets {
				(&fakeContainerd{version: "v1.7.35", config: `{"enableCDI":false}`, socket: socket}).serve(t, root)
			}
			all := Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"})
			used := slices.DeleteFunc(slices.Clone(all), func(r Runtime) bool { return !r.UsedByKubelet })
			if len(used) > 1 {
				t.Errorf("the kubelet uses %+v", used)
			}
			r, got := NewResult(all, noon, period), ""
			if r.Runtime != nil {
				got = fmt.Sprint(r.Runtime.Name, " ", r.Runtime.CDI)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if a := r.Answer(noon); (a.CDI == Off) != strings.HasSuffix(test.want, "off") || a.CDI != On && a.Reason.Remedy == "" {
				t.Errorf("the answer is %+v", a)
			}
		})
	}
}

// TestResultIsKept: what is written is what is read, and who reads it knows why and what to do.
func TestResultIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "var/lib/lpuctl/runtime.json")
	for state, want := range map[State]string{
		On:          "",
		Off:         "cdi-off: containerd 1.7.35, which the kubelet uses: why it is off: what to do",
		Unsupported: "cdi-off: containerd 1.7.35, which the kubelet uses: why it is unsupported: what to do",
		Unknown:     "cdi-unknown: containerd 1.7.35, which the kubelet uses: why it is unknown: what to do",
	} {
		if err := checked(state).Write(path, noon); err != nil {
			t.Fatal(err)
		}
		a, got := ReadAnswer(path, noon), ""
		if a.Reason != nil {
			got = fmt.Sprintf("%s: %s: %s", a.Reason.ID, a.Reason.Message, a.Reason.Remedy)
		}
		if got != want || a.CDI != supported(state) {
			t.Errorf("%s is read as %s, %q", state, a.CDI, got)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

// A runtime that has CDI on and does not hand out LPUs all the same is no yes, for who reads the
// result as for who checks.
func TestOnIsNotEnough(t *testing.T) {
	for name, test := range map[string]struct {
		files     map[string]string
		version   string
		want      State // in the answer
		confirmed bool
	}{
		"on":      {nil, "2.2.9", On, true},
		"off":     {nil, "1.7.35", Off, false},
		"unknown": {nil, "", Unknown, false},
		"specs from elsewhere alone": {map[string]string{
			containerdConfig: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\ncdi_spec_dirs = [\"/x\"]\n",
		}, "2.2.9", Off, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := installContainerd(t, test.version)
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			r := containerdOn(t, root, Options{})
			a := NewResult([]Runtime{*r}, noon, period).Answer(noon)
			if a.CDI != test.want || (a.CDI == On) != (a.Reason == nil) || r.Confirmed() != test.confirmed {
				t.Errorf("the answer is %+v, confirmed %t\n%s", a, r.Confirmed(), describe(root, r))
			}
		})
	}
}

// What is not installed, or not used, need not hand out anything.
func TestUnused(t *testing.T) {
	const installed = "Package: containerd\nStatus: install ok installed\nVersion: 2.2.9\n"
	disabled := map[string]string{
		"usr/bin/containerd": "", "var/lib/dpkg/status": installed, containerdConfig: "disabled_plugins = [\"cri\"]\n",
	}
	kubelet := maps.Clone(disabled)
	kubelet["var/lib/kubelet/config.yaml"] = "kind: KubeletConfiguration\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"a file of podman's":         {map[string]string{"etc/containers/containers.conf": ""}, true},
		"a file of Docker's":         {map[string]string{"etc/docker/daemon.json": "{"}, true},
		"a file of containerd's":     {map[string]string{containerdConfig: ""}, true},
		"a file of k3s":              {map[string]string{"var/lib/rancher/k3s/agent/etc/containerd/config.toml": ""}, true},
		"podman of no known version": {map[string]string{"usr/bin/podman": ""}, false},
		"the containerd of Docker":   {disabled, true},
		"and of a kubelet":           {kubelet, false},
		"one that a kubelet wants": {map[string]string{
			"var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			all := Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"})
			if len(all) != 1 || all[0].Unused != test.want || all[0].Confirmed() != test.want {
				t.Errorf("found %+v", all)
			}
		})
	}
}

// edited is the text of a result with another value of a key; nil takes the key out.
func edited(t *testing.T, key string, value any) string {
	t.Helper()
	document := map[string]any{}
	text, err := json.Marshal(checked(Off))
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if document[key] = value; value == nil {
		delete(document, key)
	}
	if text, err2 := json.Marshal(document); err == nil && err2 == nil {
		return string(text)
	}
	t.Fatal(err)
	return ""
}

// TestResultsThatDoNotCount: they are unknown, never on or off, and it is said why.
func TestResultsThatDoNotCount(t *testing.T) {
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }
	}
	whole := edited(t, "x", 1) // a key that it does not know does not matter
	mode := func(m os.FileMode) func(string) error {
		return func(path string) error {
			if err := write(whole)(path); err != nil {
				return err
			}
			return os.Chmod(path, m)
		}
	}
	for name, test := range map[string]struct {
		put  func(path string) error
		at   host.Moment
		want string // in the message; "": it counts
	}{
		"fresh":              {write(whole), noon, ""},
		"two periods old":    {write(whole), later(2 * period), ""},
		"older":              {write(whole), later(2*period + 1), "older than 10m0s"},
		"to come":            {write(whole), later(-1), "still to come"},
		"of another boot":    {write(whole), host.Moment{Boot: "other", SinceBoot: noon.SinceBoot}, "since this boot"},
		"the boot not known": {write(whole), host.Moment{SinceBoot: noon.SinceBoot}, "since this boot"},
		"of no boot":         {write(edited(t, "boot", nil)), host.Moment{SinceBoot: noon.SinceBoot}, "since this boot"},
		"absent":             {func(string) error { return nil }, noon, "there is no "},
		"empty":              {write(""), noon, "unexpected end"},
		"half":               {write(whole[:len(whole)/2]), noon, "unexpected end"},
		"junk":               {write("\x00\xff"), noon, "invalid character"},
		"more than one":      {write(whole + whole), noon, "after top-level value"},
		"a list":             {write("[]"), noon, "cannot unmarshal"},
		"null":               {write("null"), noon, `kind ""; expected`},
		"newer":              {write(edited(t, "apiVersion", "lpuctl.hyperaccel.ai/v2")), noon, `"lpuctl.hyperaccel.ai/v2"`},
		"another document":   {write(edited(t, "kind", "Health")), noon, `kind "Health"; expected`},
		"no period":          {write(edited(t, "periodSeconds", nil)), noon, "periodSeconds is 0"},
		"a negative period":  {write(edited(t, "periodSeconds", -5)), noon, "periodSeconds is -5"},
		"years":              {write(edited(t, "periodSeconds", 1e9)), noon, "periodSeconds is 1000000000"},
		"beyond a duration":  {write(edited(t, "periodSeconds", int64(1<<62))), noon, "periodSeconds is"},
		"before the boot":    {write(edited(t, "sinceBoot", -1)), noon, "sinceBoot is -1"},
		"no runtime":         {write(edited(t, "runtime", nil)), noon, "no runtime that the kubelet is known to use"},
		"a runtime of none":  {write(edited(t, "runtime", map[string]any{})), noon, `runtime is "" with cdi ""`},
		"a word":             {write(edited(t, "runtime", map[string]any{"name": "x", "cdi": "maybe"})), noon, `cdi "maybe"`},
		"a number":           {write(edited(t, "runtime", map[string]any{"name": "x", "cdi": 1})), noon, "cannot unmarshal"},
		"large":              {write(strings.Repeat(" ", int(resultFile("").Limit)) + whole), noon, "larger than such a file can be"},
		"a link": {func(path string) error {
			if err := write(whole)(path + "2"); err != nil {
				return err
			}
			return os.Symlink(path+"2", path)
		}, noon, "not trusted: a symbolic link"},
		"a FIFO":              {func(path string) error { return unix.Mkfifo(path, 0o644) }, noon, "not trusted: a FIFO"},
		"a directory":         {func(path string) error { return os.Mkdir(path, 0o755) }, noon, "not trusted: a directory"},
		"the group may write": {mode(0o664), noon, "others may write to"},
		"all may write":       {mode(0o646), noon, "others may write to"},
		"of another user": {func(path string) error {
			if err := write(whole)(path); err != nil {
				return err
			}
			return os.Chown(path, 12345, 0)
		}, noon, "it belongs to user 12345"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runtime.json")
			if err := test.put(path); err != nil {
				if os.IsPermission(err) {
					t.Skip("needs root: only root can give a file to another user")
				}
				t.Fatal(err)
			}
			a := ReadAnswer(path, test.at)
			if test.want == "" {
				if a.CDI != Off {
					t.Errorf("it does not count: %+v", a.Reason)
				}
				return
			}
			if strings.Contains(a.Reason.Message, path) {
				t.Errorf("it names a path that the node need not have: %s", a.Reason.Message)
			}
			if a.CDI != Unknown || a.Reason.ID != finding.CDIUnknown || !strings.Contains(a.Reason.Message, test.want) || a.Reason.Remedy == "" {
				t.Errorf("want %q, got %s, %+v", test.want, a.CDI, a.Reason)
			}
		})
	}
}

func TestFileOfTheReleaseBefore(t *testing.T) {
	plant.Rewritten(t, resultFile(""), "testdata/runtime.json")
}

// TestResultFileIsFollowed: a program that looks again and again sees every change, and that a result gets old.
func TestResultFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.json")
	expect := func(what string, at host.Moment, want State) {
		t.Helper()
		if a := ReadAnswer(path, at); a.CDI != want {
			t.Errorf("%s: %s, %+v", what, a.CDI, a.Reason)
		}
	}
	replace := func(s State) {
		t.Helper()
		if err := checked(s).Write(path, noon); err != nil {
			t.Fatal(err)
		}
	}
	expect("none", noon, Unknown)
	replace(Off)
	expect("the first", noon, Off)
	expect("it gets old", later(time.Hour), Unknown)
	expect("as it was", noon, Off)
	replace(On)
	expect("replaced", noon, On)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	expect("others may write to it", noon, Unknown)
	replace(On)
	expect("replaced again", noon, On)
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	expect("gone", noon, Unknown)
	if err := os.Symlink(path+".moved", path); err != nil {
		t.Fatal(err)
	}
	expect("a link to the same", noon, Unknown)
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestAYoungerResultStays: a check that hung does not replace what a later one has found; unless that is of another boot, of a time that is
// still to come, or cannot be used.
func TestAYoungerResultStays(t *testing.T) {
	at := func(m host.Moment) *Result {
		r := checked(On)
		r.Moment = m
		return r
	}
	for name, test := range map[string]struct {
		there *Result
		stays bool
	}{
		"older":           {at(later(-time.Minute)), false},
		"as old":          {at(noon), false},
		"younger":         {at(later(20 * time.Second)), true},
		"of another boot": {at(host.Moment{Boot: "other", SinceBoot: noon.SinceBoot + time.Second}), false},
		"of no boot":      {at(host.Moment{SinceBoot: noon.SinceBoot + time.Second}), false},
		"to come":         {at(later(time.Hour)), false},
		"unusable":        {&Result{Moment: later(time.Second)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runtime.json")
			if err := test.there.Write(path, noon); err != nil {
				t.Fatal(err)
			}
			err := checked(Off).Write(path, later(time.Minute))
			if errors.Is(err, ErrYounger) != test.stays || !test.stays && err != nil {
				t.Error(err)
			}
			if a := ReadAnswer(path, later(time.Minute)); (a.CDI == On) != test.stays {
				t.Errorf("it says %+v", a)
			}
		})
	}
}

// TestResultIsNotWrittenThroughALink: nor is what the link leads to touched.
func TestResultIsNotWrittenThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "runtime.json"), filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := checked(On).Write(path, noon); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(target); string(text) != "mine" || err != nil {
		t.Errorf("the target has %q, %v", text, err)
	}
}
