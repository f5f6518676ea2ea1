package docs

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what a workflow of GitHub may have: rights of a single job are not in it.
type workflow struct {
	Name        string
	On          map[string]any
	Permissions map[string]string
	Concurrency map[string]string
	Jobs        map[string]struct {
		RunsOn    string `yaml:"runs-on"`
		Timeout   int    `yaml:"timeout-minutes"`
		Container struct{ Image, Options string }
		Env       map[string]string
		Steps     []struct {
			Name, If, Uses, Run string
			With                map[string]string
		}
	}
}

// form is an issue form of GitHub.
type form struct {
	Name, Description string
	Labels            []string
	Body              []field
}

type field struct {
	Type, ID   string
	Attributes struct {
		Label, Description, Value, Render string
		Options                           []string
		Multiple                          bool
	}
	Validations struct{ Required bool }
}

// chooser is config.yml beside the forms.
type chooser struct {
	Blank    bool                                `yaml:"blank_issues_enabled"`
	Contacts []struct{ Name, URL, About string } `yaml:"contact_links"`
}

// strictly decodes the files of a pattern from the top of the source. There are at least so many.
func strictly[T any](t *testing.T, pattern string, least int) map[string]T {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, pattern))
	if err != nil || len(files) < least {
		t.Fatalf("%s: %v, %d files", pattern, err, len(files))
	}
	all := map[string]T{}
	for _, file := range files {
		name, err := filepath.Rel(top, file)
		if err != nil {
			t.Fatal(err)
		}
		decoder, content := yaml.NewDecoder(strings.NewReader(readPage(t, name))), *new(T)
		decoder.KnownFields(true)
		if err := decoder.Decode(&content); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		all[name] = content
	}
	return all
}

// hasFiles tells whether the repository has files of a pattern of git.
func hasFiles(t *testing.T, pattern string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", top, "ls-files", "-co", "--exclude-standard", ":(glob)"+pattern).Output()
	if err != nil {
		t.Fatal(err)
	}
	return len(bytes.TrimSpace(out)) > 0
}

// TestWorkflows: they may read only, name actions by commit or major version, and run scripts and
// targets that are there.
func TestWorkflows(t *testing.T) {
	makefiles := readPage(t, "Makefile") + readPage(t, "packaging/package.mk")
	action := regexp.MustCompile(`^actions/[\w/-]+@([0-9a-f]{40}|v\d+)$`)
	script, target := regexp.MustCompile(`(?:^|\s)([\w.]+/[\w./-]+)`), regexp.MustCompile(`\bmake ([\w-]+)`)
	hashed, quoted := regexp.MustCompile(`hashFiles\((.*?)\)`), regexp.MustCompile(`'([^']+)'`)
	var run strings.Builder
	for file, w := range strictly[workflow](t, ".github/workflows/*.yml", 2) {
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: its rights are %v", file, w.Permissions)
		}
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				run.WriteString(step.Run + "\n")
				if (step.Uses == "") == (step.Run == "") || step.Uses != "" && !action.MatchString(step.Uses) {
					t.Errorf("%s: step %q uses %q and runs %q", file, step.Name, step.Uses, step.Run)
				}
				for _, m := range script.FindAllStringSubmatch(step.Run, -1) {
					if !exists(m[1]) {
						t.Errorf("%s: there is no %s", file, m[1])
					}
				}
				for _, m := range target.FindAllStringSubmatch(step.Run, -1) {
					if !strings.Contains(makefiles, "\n"+m[1]+":") {
						t.Errorf("%s: there is no target %s", file, m[1])
					}
				}
				if version := step.With["go-version-file"]; version != "" && !exists(version) {
					t.Errorf("%s: there is no %s", file, version)
				}
				for _, m := range hashed.FindAllStringSubmatch(step.With["key"], -1) {
					for _, pattern := range quoted.FindAllStringSubmatch(m[1], -1) {
						if !hasFiles(t, pattern[1]) {
							t.Errorf("%s: no file is %s", file, pattern[1])
						}
					}
				}
			}
		}
	}
	for _, stage := range []string{"bash .ci/run\n", "bash .ci/long\n"} {
		if !strings.Contains(run.String(), stage) {
			t.Errorf("no workflow runs %s", stage)
		}
	}
}

// TestForms: each field has a type that GitHub knows, a label and an id of its own, and the form of
// a bug asks for the version.
func TestForms(t *testing.T) {
	forms := strictly[form](t, ".github/ISSUE_TEMPLATE/[a-bd-z]*.yml", 2)
	for file, f := range forms {
		ids := map[string]bool{}
		for _, field := range f.Body {
			switch a := field.Attributes; {
			case field.Type == "markdown" && a.Value != "":
			case !slices.Contains([]string{"input", "textarea", "dropdown"}, field.Type) || a.Label == "" || field.ID == "" || ids[field.ID]:
				t.Errorf("%s: the field %+v", file, field)
			case (field.Type == "dropdown") != (len(a.Options) > 0):
				t.Errorf("%s: %s has the options %v", file, field.ID, a.Options)
			}
			ids[field.ID] = true
		}
		if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
			t.Errorf("%s: it has no name, description or body", file)
		}
	}
	asksVersion := func(f field) bool {
		return strings.Contains(f.Attributes.Description, "`lpuctl version`") && f.Validations.Required
	}
	if !slices.ContainsFunc(forms[".github/ISSUE_TEMPLATE/bug.yml"].Body, asksVersion) {
		t.Error("no field of the form of a bug asks for lpuctl version")
	}
	page := regexp.MustCompile(`^https://github\.com/hyperaccel/lpuctl/(?:security/advisories/new|blob/main/(.+))$`)
	for file, c := range strictly[chooser](t, ".github/ISSUE_TEMPLATE/config.yml", 1) {
		for _, contact := range c.Contacts {
			if m := page.FindStringSubmatch(contact.URL); m == nil || !exists(m[1]) || contact.Name == "" || contact.About == "" {
				t.Errorf("%s: the contact %+v", file, contact)
			}
		}
	}
}

// TestOwners: each line of CODEOWNERS has a path that is there, and a team of the organisation.
func TestOwners(t *testing.T) {
	line := regexp.MustCompile(`^(\*|/\S+) +@hyperaccel/[a-z-]+$`)
	owned := 0
	for text := range strings.Lines(readPage(t, ".github/CODEOWNERS")) {
		if text = strings.TrimSuffix(text, "\n"); text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil || m[1] != "*" && !exists(m[1]) {
			t.Errorf("CODEOWNERS: %s", text)
		}
		owned++
	}
	if owned == 0 {
		t.Error("CODEOWNERS has no line")
	}
}
