package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// remedyScripts are the scripts that carry out remedies. For each id, "finds ID lpuctl ARGUMENTS" wants lpuctl to print the finding.
// Then the script does what the remedy says, and "gone" wants the same command not to print the finding any more:
//
//	carry      runs the commands of the remedy, exactly as they were printed
//	edit EXPR  edits the line that the finding names, with an expression of sed
//	anything else is for remedies in words; the script should match these with stderr
//
// LPUCTL_ROOT names the node, so that a command that was printed needs no --root.
const remedyScripts = "testdata/remedy"

// TestRemedies carries out every remedy that can be carried out on a simulated node, by an ordinary user.
func TestRemedies(t *testing.T) {
	captures, err := filepath.Abs("../../pkg/ring/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 remedyScripts,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TABLES", captures)
			env.Setenv("LPUCTL_ROOT", "node")
			env.Values[current{}] = &remedy{}
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Getuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"finds": finds, "carry": carry, "edit": edit, "gone": gone},
	})
}

// current is the key of the remedy that a script carries out.
type current struct{}

// remedy is a finding that a command has printed, and what is to be done about it.
type remedy struct {
	id      string
	command []string // that printed it
	text    string
	file    string              // that the finding names
	line    string              // in file; "": the file as a whole
	before  map[string][]string // the findings that were printed, by id
}

var (
	printedFinding = regexp.MustCompile(`(?m)^ *(error|warning|note): (.*) \[([a-z-]+)\]\n *remedy: (.*)$`)
	printedLine    = regexp.MustCompile(`(?:^|: )([^ :]+):(\d+): `)
	printedFile    = regexp.MustCompile(`(?:^|: )([^ :]*\.[^ :]*): `)
	printedCommand = regexp.MustCompile(`^(lpuctl|chmod|chown|rm|mv|echo|modprobe|mknod) `)
)

// finds runs a command and wants it to print a finding with this id.
func finds(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(current{}).(*remedy)
	if r.id != "" {
		ts.Fatalf("%s is not gone yet", r.id)
	}
	*r = remedy{id: args[0], command: args[1:]}
	r.before = r.printed(ts)
	m := r.before[r.id]
	if m == nil {
		ts.Fatalf("%v does not find %s", r.command, r.id)
	}
	r.text = m[4]
	if place := printedLine.FindStringSubmatch(m[2]); place != nil {
		r.file, r.line = place[1], place[2]
	} else if place := printedFile.FindStringSubmatch(m[2]); place != nil {
		r.file = place[1]
	}
}

// printed runs the command, and returns the findings that it prints, by id. The exit code does not matter, because a note does not
// change it.
func (r *remedy) printed(ts *testscript.TestScript) map[string][]string {
	if err := ts.Exec(r.command[0], r.command[1:]...); err != nil {
		ts.Logf("%v", err)
	}
	findings := map[string][]string{}
	for _, m := range printedFinding.FindAllStringSubmatch(ts.ReadFile("stdout")+ts.ReadFile("stderr"), -1) {
		if findings[m[3]] == nil {
			findings[m[3]] = m
		}
	}
	return findings
}

// carry runs the commands of the remedy as they were printed. They stand between semicolons or after a colon. Exit code 3 is fine:
// the command worked, and has found something else.
func carry(ts *testscript.TestScript, _ bool, _ []string) {
	r := ts.Value(current{}).(*remedy)
	commands := commandsOf(r.text)
	if len(commands) == 0 {
		ts.Fatalf("%s: the remedy has no command: %s", r.id, r.text)
	}
	for _, command := range commands {
		if err := ts.Exec("sh", "-c", command); err != nil && err.Error() != "exit status 3" {
			ts.Fatalf("%s: %v", command, err)
		}
	}
}

func commandsOf(text string) (commands []string) {
	for _, clause := range regexp.MustCompile(`; |: |, or `).Split(text, -1) {
		if printedCommand.MatchString(clause) {
			commands = append(commands, clause)
		}
	}
	return commands
}

// edit edits the line that the finding names, or the whole file where it names none.
func edit(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(current{}).(*remedy)
	if r.file == "" {
		ts.Fatalf("%s names no file", r.id)
	}
	ts.Check(ts.Exec("sed", "-i", r.line+args[0], r.file))
}

// gone wants the command to print the finding no more, and no error instead that was not there before.
func gone(ts *testscript.TestScript, _ bool, _ []string) {
	r := ts.Value(current{}).(*remedy)
	for id, m := range r.printed(ts) {
		if id == r.id || m[1] == string(finding.Error) && r.before[id] == nil {
			ts.Fatalf("after the remedy %q there is %s", r.text, m[0])
		}
	}
	*r = remedy{}
}

// remediesElsewhere are the tests that carry out the remedies that need more than a simulated node: the file, and the name in it.
var remediesElsewhere = map[finding.ID]string{}

// remediesInWords are those that no test can carry out, and why.
var remediesInWords = map[finding.ID]string{}

// TestEveryRemedyIsClassified: each id of the table has a script that carries out its remedy, or a test elsewhere that does, or a
// reason why there is none; and only one of them.
func TestEveryRemedyIsClassified(t *testing.T) {
	scripts, err := filepath.Glob(remedyScripts + "/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in %s: %v", remedyScripts, err)
	}
	classes := map[finding.ID][]string{}
	for _, script := range scripts {
		text := readText(t, script)
		for _, m := range regexp.MustCompile(`(?m)^finds (\S+)`).FindAllStringSubmatch(text, -1) {
			if id := finding.ID(m[1]); !slices.Contains(classes[id], script) {
				classes[id] = append(classes[id], script)
			}
		}
	}
	for id, where := range remediesElsewhere {
		classes[id] = append(classes[id], where)
		file, name, _ := strings.Cut(where, " ")
		if !strings.Contains(readText(t, filepath.Join("../..", file)), name) {
			t.Errorf("%s: there is no %s in %s", id, name, file)
		}
	}
	for id, why := range remediesInWords {
		classes[id] = append(classes[id], why)
	}
	for _, group := range finding.Groups() {
		for _, rule := range group.Rules {
			if n := len(classes[rule.ID]); n != 1 {
				t.Errorf("%s has %d classes, want one: %q", rule.ID, n, classes[rule.ID])
			}
			delete(classes, rule.ID)
		}
	}
	for id := range classes {
		t.Errorf("%s is not in the table of findings", id)
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
