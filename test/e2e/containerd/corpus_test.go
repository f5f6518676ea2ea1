package containerd

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// sample is a config of testdata. Public ones have the shape of a file that their first line names, reduced to the keys
// that matter; the others break one rule of CRI's, or nearly.
type sample struct {
	name     string
	rule     string // "": a public one
	unjudged bool   // files cannot tell whether CRI starts
	version  string // of the config
	files    map[string]string
}

// samples reads testdata: a comment, and files as in the archives of txtar.
func samples(t *testing.T) (all []sample) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("there is no testdata", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parts := regexp.MustCompile(`(?m)^-- etc/containerd/(.*) --\n`).Split(string(data), -1)
		names := regexp.MustCompile(`(?m)^-- etc/containerd/(.*) --\n`).FindAllStringSubmatch(string(data), -1)
		s := sample{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), files: map[string]string{}}
		for line := range strings.Lines(parts[0]) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "rule":
				s.rule = value
			case "unjudged":
				s.unjudged = true
			case "origin":
			default:
				t.Fatalf("%s: what is %q?", path, line)
			}
		}
		for i, name := range names {
			s.files[name[1]] = parts[i+1]
		}
		s.version = "1"
		if m := regexp.MustCompile(`(?m)^version = (\d)`).FindStringSubmatch(s.files["config.toml"]); m != nil {
			s.version = m[1]
		}
		all = append(all, s)
	}
	return all
}

// releases are those of containerd that are tried.
func releases() []string { return []string{"1.7.35", "2.2.9", "2.4.2", "1.6.20"} }

// choose finds the samples to try on each release. Where LPUCTL_LONG is not set every second sample is tried on one release
// that reads its version, and each release tries each rule; 1.6, which has no CDI, tries one sample of each rule.
func choose(all []sample) map[string][]sample {
	chosen, tried, count := map[string][]sample{}, map[string]bool{}, map[string]int{}
	try := func(s sample, release string) {
		chosen[release] = append(chosen[release], s)
		tried[s.rule+release] = true
	}
	for i, s := range all {
		if i%2 == 1 && os.Getenv("LPUCTL_LONG") == "" {
			continue
		}
		first := 0
		if s.version > "2" { // 1.x refuses it
			first = 1
		}
		candidates := releases()[first:3]
		if os.Getenv("LPUCTL_LONG") != "" {
			candidates = releases()
		} else {
			n := count[s.rule] % len(candidates)
			count[s.rule]++
			candidates = candidates[n : n+1]
		}
		for _, release := range candidates {
			try(s, release)
		}
	}
	for _, release := range releases() {
		for _, s := range all {
			if !tried[s.rule+release] {
				try(s, release)
			}
		}
	}
	return chosen
}

// TestCorpus holds what `lpuctl runtime check` says of configs against what a container of CRI gets. While a daemon uses
// one config the next is put in its place: then the answer tells of now and of after a restart.
func TestCorpus(t *testing.T) {
	chosen := choose(samples(t))
	for _, release := range releases() {
		t.Run(release, func(t *testing.T) {
			e, samples := newEngine(t, release), chosen[release]
			simulate(t)
			spec := machine.Output(t, "ctr", "oci", "spec")
			for _, s := range samples {
				for name, text := range s.files {
					if text == "" {
						s.files[name] = spec // from which containers are made by default
					}
				}
			}
			rand.New(rand.NewPCG(1, 0)).Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
			e.configure(samples[0].files)
			said := check(t).verdict()
			for i, s := range samples {
				t.Run(s.name, func(t *testing.T) {
					e := &engine{t: t, release: release, socket: socket}
					truth := e.fresh()
					s.compare(t, release, "before it was in use", said, truth)
					asked := e.ask(truth).verdict()
					s.compare(t, release, "in use", asked, truth)
					if s.unjudged && (truth == "yes" || truth == "no") && asked != truth {
						t.Errorf("%s on %s: the running daemon does not tell: %s, truth %s", s.name, release, asked, truth)
					}
					if truth != "yes" && s.rule != "" && (i%4 == 0 || os.Getenv("LPUCTL_LONG") != "") {
						truth = s.correct(e, truth)
					}
					e.configure(samples[(i+1)%len(samples)].files)
					a := e.ask(truth)
					s.compare(t, release, "in use, and others in place", a.now(), truth)
					said = a.next()
				})
			}
			e.configure(nil)
			t.Logf("%d configs", len(samples))
		})
	}
}

// TestKeys: no key that a release prints has a type that lpuctl does not know. Options of runtimes are not judged.
func TestKeys(t *testing.T) {
	for _, release := range releases()[:3] {
		t.Run(release, func(t *testing.T) {
			e := newEngine(t, release)
			lines := strings.Split(machine.Output(t, "containerd", "config", "default"), "\n")
			e.configure(map[string]string{"config.toml": strings.Join(lines, "\n")})
			if a := check(t); a.has("config-refused") || a.has("cri-would-fail") || a.has("cri-not-judged") {
				t.Errorf("its own config: %+v", a.Findings)
			}
			table, n := "", 0
			for i, line := range lines {
				if strings.HasPrefix(strings.TrimSpace(line), "[") {
					table = strings.TrimSpace(line)
				}
				key, _, isKey := strings.Cut(line, " = ")
				if !isKey || strings.HasSuffix(table, ".options]") || strings.HasSuffix(table, ".unpack_config]]") {
					continue
				}
				n++
				e.configure(map[string]string{"config.toml": strings.Join(slices.Concat(lines[:i], []string{key + " = {}"}, lines[i+1:]), "\n")})
				if a := check(t); !a.has("config-refused") {
					t.Errorf("%s %s = {}: it is %s, of %+v", table, key, a.CDI, a.Findings)
				}
			}
			t.Logf("%d keys", n)
		})
	}
}

// correct makes the edits that are printed, if all of what is wrong has one, and returns what a container gets then.
func (s sample) correct(e *engine, truth string) string {
	t := e.t
	e.stop()
	made := mend(t, check)
	if slices.ContainsFunc(check(t).Findings, func(f finding) bool { return f.Severity == "error" }) {
		return "refused" // somebody has to think
	}
	if len(made) == 0 {
		_ = e.fresh()
		return truth
	}
	said, truth := check(t).verdict(), e.fresh()
	s.compare(t, e.release, fmt.Sprintf("after the edits %q", made), said, truth)
	return truth
}

// compare holds a verdict against the truth. Whether it is containerd or only its CRI that does not start does not matter.
// Where files cannot tell, nobody has to know, and CDI may be on although no container starts.
func (s sample) compare(t *testing.T, release, when, said, truth string) {
	t.Helper()
	plain := strings.NewReplacer("refused", "no")
	open := s.unjudged && (said == "unknown" || strings.HasPrefix(truth, "neither"))
	if plain.Replace(said) != plain.Replace(truth) && !open && said != unknowable {
		t.Errorf("%s on %s, %s: lpuctl says %s, truth %s", s.name, release, when, said, truth)
	}
}

// ask runs the check, again if a daemon that runs does not answer in time: the machine may be busy.
func (e *engine) ask(truth string) (a answer) {
	e.t.Helper()
	for range 5 {
		if a = check(e.t); a.Source == "live" || truth == "refused" {
			break
		}
	}
	return a
}

// now is the verdict on the running daemon; of the files, if none runs, no word.
func (a answer) now() string {
	if a.Source == "live" {
		return a.verdict()
	}
	return "refused"
}

// unknowable is the verdict on a restart of a daemon whose CRI failed now: whether its files changed since is not known.
const unknowable = "unknown, for CRI failed now"

// next is the verdict on the time after a restart.
func (a answer) next() string {
	switch {
	case a.AfterRestart == "unknown" && a.has("cri-failed"):
		return unknowable
	case a.Source != "live":
		return a.verdict()
	case a.AfterRestart == "unknown":
		return "unknown"
	case a.AfterRestart == "off", a.has("restart-changes"), a.CDI == "off" && a.has("spec-dir-not-read"):
		return "no"
	}
	return "yes"
}
