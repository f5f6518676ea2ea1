package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// run is one golden run.
type run struct {
	lpuctl string // absolute
	out    string // where the records go: NODE/COMMAND
	trees  string // the nodes, which stay as they are
	work   string // a temporary directory
}

// timeLimit ends a command that hangs, and none because the machine is busy; what it printed by then is its record.
const timeLimit = 2 * time.Minute

// aboutFile says in which circumstances a run was made: runs in different ones cannot be compared.
const aboutFile = "about"

func (r *run) all() error {
	about := "device nodes: real\n"
	if _, err := os.Stat(filepath.Join(r.trees, "orion-8/dev")); errors.Is(err, fs.ErrNotExist) {
		about = "device nodes: none (only root can make them)\n"
	}
	if err := os.WriteFile(filepath.Join(r.out, aboutFile), []byte(about), 0o644); err != nil {
		return err
	}
	kept, err := stateSteps()
	if err != nil {
		return err
	}
	pages, err := r.helpSteps(slices.Concat(plainSteps(), nodeSteps(), kept))
	if err != nil {
		return err
	}
	jobs := []func() error{func() error { return r.steps("plain", slices.Concat(plainSteps(), pages)) }}
	for _, n := range nodes() {
		jobs = append(jobs, func() error { return r.onNode(n.name, n.name, nodeSteps()) })
	}
	jobs = append(jobs, func() error { return r.onNode("state", "broken-table", kept) })
	return inParallel(jobs)
}

func inParallel(jobs []func() error) error {
	var wait sync.WaitGroup
	errs, slots := make([]error, len(jobs)), make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, job := range jobs {
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = job()
			<-slots
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// helpPage is the part of what help-tree prints that is needed here.
type helpPage struct {
	Path     string
	Commands []helpPage
}

// helpSteps are the steps that show the help of every command that this lpuctl has. Those that no known step runs are said.
func (r *run) helpSteps(known []step) ([]step, error) {
	text, err := exec.Command(r.lpuctl, "help-tree").Output()
	if err != nil {
		return nil, fmt.Errorf("%s help-tree: %w", r.lpuctl, err)
	}
	var top helpPage
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, fmt.Errorf("%s help-tree: %w", r.lpuctl, err)
	}
	s := script{}
	s.run("help-tree")
	var visit func(helpPage)
	visit = func(p helpPage) {
		words := strings.Fields(p.Path)[1:]
		s.run(strings.Join(append(words, "--help"), " "))
		if !slices.ContainsFunc(known, func(k step) bool { return strings.Contains(strings.Join(k.args, " "), strings.Join(words, " ")) }) {
			fmt.Fprintf(os.Stderr, "golden: %s is not run by any step: add it to steps.go\n", p.Path)
		}
		for _, sub := range p.Commands {
			visit(sub)
		}
	}
	visit(top)
	return s, nil
}

// onNode runs steps on a fresh copy of a node.
func (r *run) onNode(name, tree string, steps []step) error {
	dir := filepath.Join(r.work, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := copyTree(filepath.Join(r.trees, tree), filepath.Join(dir, "NODE")); err != nil {
		return err
	}
	return r.steps(name, steps)
}

// steps runs steps in a directory with the inputs and, if there is one, the node. The node is named by a relative path,
// so that its length is the same in each run: it decides how wide columns are.
func (r *run) steps(name string, steps []step) error {
	dir, out := filepath.Join(r.work, name), filepath.Join(r.out, name)
	if err := add(inputs())(dir); err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	times := map[string]int{}
	for _, s := range steps {
		rec, err := r.record(dir, s)
		if err != nil {
			return err
		}
		file := strings.TrimSpace(fileName(s.args) + " " + s.about)
		if times[file]++; times[file] > 1 {
			file += fmt.Sprintf("#%d", times[file])
		}
		if err := os.WriteFile(filepath.Join(out, file), rec.bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func fileName(args []string) string {
	if i := slices.Index(args, "NODE"); i > 0 && args[i-1] == "--root" {
		args = slices.Delete(slices.Clone(args), i-1, i+1)
	}
	return strings.ReplaceAll(strings.Join(append([]string{"lpuctl"}, args...), "_"), "/", "%")
}

// record runs one step.
func (r *run) record(dir string, s step) (record, error) {
	if s.before != nil {
		if err := s.before(dir); err != nil {
			return nil, err
		}
	}
	files, err := contents(dir)
	if err != nil {
		return nil, err
	}
	code, stdout, stderr, err := r.lpuctlIn(dir, s.args)
	if err != nil {
		return nil, err
	}
	after, err := contents(dir)
	if err != nil {
		return nil, err
	}
	rec := record{{"command", strings.Join(append([]string{"lpuctl"}, s.args...), " ") + "\n"}, {exitSection, code + "\n"}}
	printed := stdoutSection
	if s.document {
		printed = documentSection
	}
	rec = append(rec, section{printed, stdout}, section{stderrSection, stderr})
	rec = append(rec, changed(files, after)...)
	for i := range rec {
		rec[i].text = stable(rec[i].text, dir)
	}
	return rec, nil
}

// lpuctlIn runs lpuctl in a directory, with no environment but a PATH.
func (r *run) lpuctlIn(dir string, args []string) (code, stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	var out, errOut strings.Builder
	cmd := exec.CommandContext(ctx, r.lpuctl, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, []string{"PATH=" + os.Getenv("PATH")}, &out, &errOut
	err = cmd.Run()
	if _, isExit := errors.AsType[*exec.ExitError](err); err != nil && !isExit {
		return "", "", "", err
	}
	code = fmt.Sprint(cmd.ProcessState.ExitCode())
	if ctx.Err() != nil {
		code = fmt.Sprintf("none: killed after %s", timeLimit)
	}
	return code, out.String(), errOut.String(), nil
}

// contents reads the files that lpuctl may write. It leaves out what the kernel and packages have made.
func contents(dir string) (map[string]string, error) {
	return readFiles(dir, "sys", "dev", "opt", "usr")
}

// changed are sections for the files that were written or removed.
func changed(before, after map[string]string) record {
	var rec record
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if text, was := before[name]; !was || text != after[name] {
			rec = append(rec, section{"file " + name, after[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := after[name]; !is {
			rec = append(rec, section{"removed " + name, name + "\n"})
		}
	}
	return rec
}

// stable replaces what differs from run to run, or from build to build.
func stable(text, dir string) string {
	text = strings.ReplaceAll(text, dir+"/", "")
	for _, r := range []struct{ pattern, with string }{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`, "TIME"},
		{`("sinceBoot": ?)\d+`, "${1}MOMENT"}, // in the lock of refresh
		{`("pid": |\bpid[:= ]+)\d+`, "${1}PID"},
		{`(\.json|\.yaml)\d{5,}`, "${1}RANDOM"}, // a file that is being written
		{`lpuctl \S+ \(go\S+,`, "lpuctl VERSION (GO,"},
		{`"version": ".*",\n  "go": ".*"`, "\"version\": \"VERSION\",\n  \"go\": \"GO\""},
		{`(\\"version\\":\\")[^"\\]*(\\",\\"go\\":\\")[^"\\]*`, "${1}VERSION${2}GO"}, // in the lock too
		{`go: .*\n(platform: .*)\nversion: .*`, "go: GO\n${1}\nversion: VERSION"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}
