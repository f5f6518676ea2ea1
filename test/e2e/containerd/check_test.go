package containerd

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// answer is what `lpuctl runtime check` says of containerd.
type answer struct {
	Name, Version, CDI, Source, AfterRestart string
	Findings                                 []finding
	code                                     int // of exit
}

type finding struct{ Severity, ID, File, Message, Remedy string }

func (a answer) has(id string) bool {
	return slices.ContainsFunc(a.Findings, func(f finding) bool { return f.ID == id })
}

// verdict is the answer in the words of truth; of the running daemon, or of its files.
func (a answer) verdict() string {
	switch {
	case a.has("config-refused") && a.Source != "live":
		return "refused"
	case a.CDI == "on" && !a.has("spec-dir-not-read"):
		return "yes"
	case a.CDI == "unknown":
		return "unknown"
	}
	return "no"
}

// check runs `lpuctl runtime check`.
func check(t *testing.T, flags ...string) answer {
	t.Helper()
	r := machine.Run(t, append([]string{machine.Binary(t), "runtime", "check", "-o", "json"}, flags...)...)
	if r.Code != 0 && r.Code != 3 {
		t.Fatalf("runtime check %v: exit code %d: %s", flags, r.Code, r.Stderr)
	}
	var document struct{ Runtimes []answer }
	if err := json.Unmarshal([]byte(r.Stdout), &document); err != nil {
		t.Fatal(err)
	}
	for _, a := range document.Runtimes {
		if a.Name == "containerd" {
			a.code = r.Code
			return a
		}
	}
	t.Fatalf("runtime check %v: no word of containerd: %s", flags, r.Stdout)
	return answer{}
}

// The tables of CRI, and a line that makes a file import drop-ins.
var tables = strings.NewReplacer(
	"{1}", "[plugins.cri]",
	"{2}", `[plugins."io.containerd.grpc.v1.cri"]`,
	"{3}", `[plugins."io.containerd.cri.v1.runtime"]`,
	"{imports}", `imports = ["conf.d/*.toml"]`,
)

// configuration is a config and, for releases, whether a container gets the LPU: yes, no (which an edit mends), never,
// or refused, if containerd does not start.
type configuration struct {
	name  string
	files []string // config.toml, then conf.d/1.toml and so on
	want  string   // release line and outcome
}

func configurations() []configuration {
	return []configuration{
		{"no file", nil, "1.6 never, 1.7 no, 2.2 yes, 2.4 yes"},
		{"an empty file", []string{""}, "1.7 no, 2.2 yes"},
		// Versions and tables.
		{"version 1, on", []string{"{1}\nenable_cdi = true"}, "1.6 never, 1.7 yes, 2.2 yes, 2.4 yes"},
		{"version 1, off", []string{"{1}\nenable_cdi = false"}, "1.7 no, 2.2 yes, 2.4 yes"},
		{"version 2, on", []string{"version = 2\n{2}\nenable_cdi = true"}, "1.6 never, 1.7 yes, 2.2 yes, 2.4 yes"},
		{"version 2, off", []string{"version = 2\n{2}\nenable_cdi = false"}, "1.7 no, 2.2 no, 2.4 yes"},
		{"version 3, on", []string{"version = 3\n{3}\nenable_cdi = true"}, "1.7 refused, 2.2 yes, 2.4 yes"},
		{"version 3, off", []string{"version = 3\n{3}\nenable_cdi = false"}, "2.2 no, 2.4 yes"},
		{"version 4", []string{"version = 4\n{3}\nenable_cdi = false"}, "2.2 refused, 2.4 yes"},
		{"the table of 1 in version 2", []string{"version = 2\n{1}\nenable_cdi = false"}, "1.7 refused, 2.2 yes"},
		{"the table of 3 in version 2", []string{"version = 2\n{3}\nenable_cdi = true"}, "1.7 no"},
		{"the table of 2 in version 3", []string{"version = 3\n{2}\nenable_cdi = false\ncdi_spec_dirs = [\"/etc/cdi\"]"}, "2.2 yes, 2.4 no"},
		{"a subtable only", []string{"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"overlayfs\""}, "1.7 no"},
		{"dotted keys", []string{"version = 2\nplugins.\"io.containerd.grpc.v1.cri\".enable_cdi = false"}, "1.7 no, 2.2 no"},
		{"braces", []string{
			"version = 2\n[plugins]\n\"io.containerd.grpc.v1.cri\" = {enable_cdi = false, cdi_spec_dirs = [\"/etc/cdi\"]}",
		}, "1.7 no, 2.2 no"},
		{"braces without it", []string{"version = 2\n[plugins]\n\"io.containerd.grpc.v1.cri\" = {max_container_log_line_size = 100}"}, "1.7 no"},
		{"no TOML", []string{"version = 2\n[plugins"}, "1.6 refused, 1.7 refused, 2.4 refused"},
		// Keys.
		{"misspelt", []string{"version = 2\n{2}\nenabel_cdi = true"}, "1.7 no"},
		{"misspelt, off", []string{"version = 3\n{3}\nenabel_cdi = false"}, "2.2 yes"},
		{"in another case", []string{"version = 2\n{2}\nenable_CDI = true"}, "1.7 no"},
		{"in another case, off", []string{"version = 3\n{3}\nEnable_CDI = false"}, "2.2 no"},
		{"no directories", []string{"version = 2\n{2}\nenable_cdi = true\ncdi_spec_dirs = []"}, "1.7 no, 2.2 no, 2.4 yes"},
		{"another directory", []string{
			"version = 2\n{2}\nenable_cdi = true\ncdi_spec_dirs = [\n\"/etc/cdi\", # ours is not here\n]",
		}, "1.7 no, 2.4 no"},
		{"off, and another directory", []string{"version = 2\n{2}\nenable_cdi = false\ncdi_spec_dirs = [\"/etc/cdi\"]"}, "1.7 no, 2.2 no"},
		// Imports.
		{"turned on by a drop-in", []string{"version = 2\n{imports}", "version = 2\n{2}\nenable_cdi = true"}, "1.6 never, 1.7 yes"},
		{"turned off by a drop-in", []string{
			"version = 3\n{imports}\n{3}\nenable_cdi = true",
			"version = 3\n{3}\nenable_cdi = false",
		}, "2.2 no, 2.4 yes"},
		{"a drop-in with another key", []string{
			"version = 2\n{imports}\n{2}\nenable_cdi = true",
			"version = 2\n{2}\nmax_container_log_line_size = 100",
		}, "1.7 no, 2.2 yes"},
		{"a drop-in that nobody imports", []string{"version = 2", "version = 2\n{2}\nenable_cdi = true"}, "1.7 no"},
		{"an import of no version", []string{"version = 2\n{imports}", "{2}\nenable_cdi = true"}, "1.7 yes"},
		{"an import of no version, off", []string{"version = 3\n{imports}", "{3}\nenable_cdi = false"}, "2.2 no"},
		{"the last drop-in", []string{
			"version = 3\n{imports}",
			"version = 3\n{3}\nenable_cdi = true",
			"version = 3\n{3}\nenable_cdi = false",
		}, "2.2 no"},
		{"lists are replaced", []string{
			"version = 3\n{imports}\n{3}\ncdi_spec_dirs = [\"/var/run/cdi\"]",
			"version = 3\n{3}\ncdi_spec_dirs = [\"/etc/cdi\"]",
		}, "2.2 no, 2.4 no"},
		{"nested imports", []string{
			"version = 2\nimports = [\"conf.d/1.toml\"]",
			"version = 2\nimports = [\"2.toml\"]",
			"version = 2\n{2}\nenable_cdi = true",
		}, "1.7 yes"},
		{"absolute imports", []string{
			"version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]",
			"version = 2\n{2}\nenable_cdi = true",
		}, "1.7 yes"},
		{"imports of nothing", []string{"version = 2\n{imports}\n{2}\nenable_cdi = true"}, "1.7 yes, 2.2 yes"},
		{"an import that is missing", []string{"version = 2\nimports = [\"nope.toml\"]"}, "1.7 refused, 2.4 refused"},
		// Versions mixed.
		{"version 2 off, drop-in of 3", []string{
			"version = 2\n{imports}\n{2}\nenable_cdi = false",
			"version = 3\n{3}\nmax_container_log_line_size = 100",
		}, "2.2 yes, 2.4 yes"},
		{"version 3 off, drop-in of 2 on", []string{
			"version = 3\n{imports}\n{3}\nenable_cdi = false",
			"version = 2\n{2}\nenable_cdi = true",
		}, "2.2 no, 2.4 yes"},
		{"version 3, drop-in of 2 with other directories", []string{
			"version = 3\n{imports}\n{3}\ncdi_spec_dirs = [\"/var/run/cdi\"]",
			"version = 2\n{2}\ncdi_spec_dirs = [\"/etc/cdi\"]",
		}, "2.2 yes, 2.4 no"},
		// CRI disabled.
		{"CRI disabled", []string{
			"version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n{2}\nenable_cdi = true",
		}, "1.6 never, 1.7 no, 2.2 no, 2.4 no"},
		{"CRI disabled, and off", []string{
			"version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.tracing.processor.v1.otlp\"]",
		}, "1.7 no"},
		{"CRI disabled as packages of Docker do", []string{"disabled_plugins = [\"cri\"]"}, "1.7 no, 2.2 no, 2.4 no"},
		{"CRI disabled by half", []string{"version = 3\ndisabled_plugins = [\"io.containerd.cri.v1.runtime\"]"}, "2.2 no, 2.4 no"},
		{"CRI disabled by its short name", []string{"version = 2\ndisabled_plugins = [\"cri\"]"}, "1.7 refused, 2.4 refused"},
	}
}

func (c configuration) on(release string) (want string, wanted bool) {
	_, after, wanted := strings.Cut(", "+c.want, ", "+release+" ")
	want, _, _ = strings.Cut(after, ",")
	return want, wanted
}

func (c configuration) written() map[string]string {
	files := map[string]string{}
	for i, text := range c.files {
		name := "config.toml"
		if i > 0 {
			name = fmt.Sprintf("conf.d/%d.toml", i)
		}
		files[name] = tables.Replace(text) + "\n"
	}
	return files
}

func TestRuntimeCheck(t *testing.T) {
	n := 0
	for _, release := range []string{"1.6.20", "1.7.35", "2.2.9", "2.4.2"} {
		t.Run(release, func(t *testing.T) {
			e := newEngine(t, release)
			simulate(t)
			for _, c := range configurations() {
				if want, wanted := c.on(release[:3]); wanted {
					n++
					t.Run(c.name, func(t *testing.T) {
						e := &engine{t: t, release: release, socket: socket}
						e.configure(c.written())
						e.prove(c, want)
					})
				}
			}
			e.configure(nil)
		})
	}
	t.Logf("%d configurations", n)
}

// prove holds the answers of lpuctl against what containers get, and makes the edits it prints.
func (e *engine) prove(c configuration, want string) {
	t := e.t
	expected := strings.Replace(want, "never", "no", 1)
	files := check(t)
	before := []string{files.verdict(), check(t, "--root", self).verdict()}
	if len(c.files) > 0 {
		before = append(before, check(t, "--containerd-config", "/etc/containerd/config.toml").verdict())
	}
	e.know(false)
	unknown := check(t)
	e.know(true)
	truth := e.fresh()
	live := check(t)
	if said := slices.Compact(append(before, expected)); len(said) > 1 || truth != expected {
		t.Errorf("%s on %s: expected %s, truth %s, files say %v %+v", c.name, e.release, expected, truth, before, files.Findings)
	}
	if unknown.CDI != "unknown" && (truth != "refused" || !unknown.has("config-refused")) {
		t.Errorf("%s on %s: says %s although it cannot know the version: %+v", c.name, e.release, unknown.CDI, unknown.Findings)
	}
	if truth == "refused" {
		return
	}
	daemonAsked := live.Source == "live" && live.Version == e.release
	codeFits := truth != "no" || live.code == 3
	if !daemonAsked || !codeFits || live.verdict() != truth || live.AfterRestart != files.AfterRestart {
		t.Errorf("%s on %s: truth %s, files say %s, the daemon says %+v", c.name, e.release, truth, files.AfterRestart, live)
	}
	if want != "no" {
		return
	}
	edits := mend(t, check)
	if edited := check(t); len(edits) == 0 || edited.AfterRestart != "on" || edited.verdict() != "no" || edited.Source != "live" {
		t.Errorf("%s on %s: before the restart that the edits %q need: %+v", c.name, e.release, edits, edited)
	}
	e.stop()
	said := check(t).verdict()
	if truth := e.fresh(); said != "yes" || truth != "yes" {
		t.Errorf("%s on %s: after the edits %q: truth %s, files say %s", c.name, e.release, edits, truth, said)
	}
	e.tryDropIn(c, live)
}

// dropInOffered is the part of a remedy that names a drop-in, the version of its format and its table.
var dropInOffered = regexp.MustCompile(
	`A drop-in (\S+) would do as well, for \S+ imports it: version = (\d+), and the line under (\[.*\])\.`)

// tryDropIn makes the drop-in that is offered in place of an edit.
func (e *engine) tryDropIn(c configuration, a answer) {
	t := e.t
	for _, f := range a.Findings {
		m := dropInOffered.FindStringSubmatch(f.Remedy)
		if m == nil || a.has("cri-disabled") {
			continue
		}
		e.stop()
		e.configure(c.written())
		machine.Write(t, m[1], fmt.Sprintf("version = %s\n%s\nenable_cdi = true\n", m[2], m[3]))
		said := check(t).verdict()
		if truth := e.fresh(); said != "yes" || truth != "yes" {
			t.Errorf("%s on %s: with the %s: truth %s, files say %s", c.name, e.release, m[0], truth, said)
		}
	}
}

// mend makes one edit after the other until no more is printed, as somebody would who does what he reads.
func mend(t *testing.T, check func(*testing.T, ...string) answer, flags ...string) (made []string) {
	t.Helper()
	for range 5 {
		findings := check(t, flags...).Findings
		i := slices.IndexFunc(findings, func(f finding) bool { return f.Severity == "error" && edit(t, f.Remedy) })
		if i < 0 {
			return made
		}
		made = append(made, findings[i].Remedy)
	}
	t.Errorf("there is no end of edits: %q", made)
	return made
}

// edit makes an edit as lpuctl prints it, and tells whether it is one.
func edit(t *testing.T, remedy string) bool {
	t.Helper()
	remedy, _, _ = strings.Cut(remedy, "then systemctl restart containerd")
	remedy = strings.TrimRight(remedy, "; \n")
	number := func(text string) int {
		n, _ := strconv.Atoi(text) // the patterns below find digits, or nothing
		return n
	}
	for pattern, change := range map[string]func(lines, m []string) []string{
		`^(?s)(?:append to|write) (\S+):\n(.*)$`: func(lines, m []string) []string { return append(lines, m[2]) },
		`^in (\S+) under \[.*\] \(line (\d+)\) add: (.*)$`: func(lines, m []string) []string {
			if line := &lines[number(m[2])-1]; strings.Contains(*line, "{") {
				*line = strings.Replace(*line, "}", ", "+m[3]+"}", 1)
				return lines
			}
			return slices.Insert(lines, number(m[2]), m[3])
		},
		`^in (\S+) on line (\d+) set ((\S+) = .*)$`: func(lines, m []string) []string {
			from := number(m[2]) - 1
			text := strings.Join(lines[from:], "\n") // a list may go on for some lines
			if old := regexp.MustCompile(`(?i)\b` + m[4] + `\s*=\s*(true|false|\d+|"[^"]*"|'[^']*'|\[[^]]*\])`).FindString(text); old != "" {
				text = strings.Replace(text, old, m[3], 1)
			}
			return append(lines[:from], strings.Split(text, "\n")...)
		},
		`^in (\S+) on line (\d+), remove ("[^"]*") from disabled_plugins$`: func(lines, m []string) []string {
			line := &lines[number(m[2])-1]
			*line = regexp.MustCompile(regexp.QuoteMeta(m[3])+`,?\s*`).ReplaceAllString(*line, "")
			return lines
		},
	} {
		m := regexp.MustCompile(pattern).FindStringSubmatch(remedy)
		if m == nil {
			continue
		}
		data, err := os.ReadFile(m[1])
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		machine.Write(t, m[1], strings.Join(change(lines, m), "\n")+"\n")
		return true
	}
	return false
}

// TestUpgraded: a program that was replaced since its daemon started says what a restart brings, and the daemon what is.
func TestUpgraded(t *testing.T) {
	next := &engine{t: t, release: "2.2.9", socket: socket}
	need(t, next.programs()...)
	e := newEngine(t, "1.7.35")
	simulate(t)
	if truth := e.fresh(); truth != "no" {
		t.Fatalf("truth %s", truth)
	}
	next.install()
	if a := check(t); a.verdict() != "no" || a.AfterRestart != "on" || a.Version != e.release || !a.has("restart-needed") {
		t.Errorf("after the upgrade of the program: %+v", a)
	}
	e.stop()
	next.takeImage()
	if truth, a := next.fresh(), check(t); truth != "yes" || a.verdict() != "yes" || a.Version != next.release {
		t.Errorf("truth %s, and after the restart: %+v", truth, a)
	}
}

// TestElsewhere: a daemon that was told of another config, by a relative path, and serves another socket.
func TestElsewhere(t *testing.T) {
	for _, release := range []string{"1.7.35", "2.2.9"} {
		t.Run(release, func(t *testing.T) {
			e := newEngine(t, release)
			simulate(t)
			const config = "/etc/containerd/other/c.toml"
			e.socket = "/run/other/containerd.sock"
			e.configure(map[string]string{
				"config.toml":  tables.Replace("version = 2\n{2}\nenable_cdi = true\n"),
				"other/c.toml": tables.Replace("version = 2\n{2}\nenable_cdi = false\n"),
			})
			flags := []string{"-c", config[1:], "--address", e.socket}
			e.kubelet("containerRuntimeEndpoint: unix://" + e.socket)
			if !check(t).has("config-unknown") {
				t.Errorf("before it is started: %+v", check(t))
			}
			if truth := e.fresh(flags...); truth != "no" {
				t.Fatalf("truth %s", truth)
			}
			if check(t).has("config-unknown") {
				t.Errorf("after it is started: %+v", check(t))
			}
			e.kubelet("")
			ask := []string{"--containerd-address", e.socket}
			a := check(t, ask...)
			named := slices.ContainsFunc(a.Findings, func(f finding) bool { return f.File == config })
			if !named || a.verdict() != "no" || a.AfterRestart != "off" || a.Source != "live" {
				t.Errorf("its file is %s, but: %+v", config, a)
			}
			edits := mend(t, check, ask...)
			if a := check(t, ask...); a.AfterRestart != "on" || a.verdict() != "no" {
				t.Errorf("after %q: %+v", edits, a)
			}
			if truth := e.fresh(flags...); truth != "yes" || check(t, ask...).verdict() != "yes" {
				t.Errorf("after %q: truth %s", edits, truth)
			}
			// The default socket is nobody's, and then the default file speaks.
			if a := check(t); a.Source != "files" || a.verdict() != "yes" || !a.has("socket-missing") {
				t.Errorf("nobody serves the default socket, but: %+v", a)
			}
		})
	}
}
