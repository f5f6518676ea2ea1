package broken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
)

// The program, and the programs that stand in for others, below a directory that all tests share.
//
//nolint:gochecknoglobals // made once
var (
	program string
	tools   string
)

// standIns are the programs that remedies name. What they would do to a card, a row does by itself.
const standIns = "modprobe xbutil xbmgmt systemctl"

// makeTools makes the programs, once.
//
//nolint:gochecknoglobals // a function
var makeTools = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "broken-")
	if err != nil {
		return err
	}
	tools, program = dir, filepath.Join(dir, "lpuctl")
	if built := os.Getenv("LPUCTL"); built != "" {
		err = os.Symlink(built, program)
	} else {
		cmd := exec.Command("go", "build", "-o", program, "./cmd/lpuctl")
		cmd.Dir = "../.."
		said, failed := cmd.CombinedOutput()
		if failed != nil {
			err = fmt.Errorf("%w: %s", failed, said)
		}
	}
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(tools, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755)
	for name := range strings.FieldsSeq(standIns) {
		if err == nil {
			err = os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\necho \"${0##*/} $*\" >> ran\n"), 0o755)
		}
	}
	return err
})

// RemoveTools removes the programs that tests have made.
func RemoveTools() {
	if tools != "" {
		_ = os.RemoveAll(tools)
	}
}

// node is a node in a directory of its own. Its root is "node" there, and commands run there.
type node struct {
	dir string
}

// prelude is what scripts of the rows can use: lpu2 of a server with four, and what belongs to it.
const prelude = `
ROOT=node
PCI=$ROOT/sys/bus/pci
ADDRESS=0000:45:00.1
CARD=$PCI/devices/$ADDRESS
NODE=$ROOT/dev/dri/renderD130
SPECS=$ROOT/var/run/cdi
SPEC=$SPECS/hyperaccel.ai-lpu.json
TABLE=$ROOT/opt/hyperdex/hrt/xclbin/table.json
# aside keeps a file as it is now, and back brings all of them back. An ordinary user's node has no device files.
aside() { mkdir -p aside; for f; do keep "$f"; done; }
keep() { ! [ -e "$1" ] || { f=$(realpath -s --relative-to=. "$1"); tar cf "aside/$(echo "$f" | tr / +).tar" "$f"; }; }
back() { for f in aside/*.tar; do tar xf "$f"; done; }
# has installs a release of a package, as dpkg writes it.
has() { mkdir -p $ROOT/usr/bin $ROOT/var/lib/dpkg; : > $ROOT/usr/bin/$1
  printf 'Package: %s\nStatus: install ok installed\nVersion: %s\n\n' "$2" "$3" >> $ROOT/var/lib/dpkg/status; }
# put writes standard input to a file of the node.
put() { mkdir -p "$(dirname "$ROOT$1")"; cat > "$ROOT$1"; }
set -e
`

func simulate(t *testing.T, arguments ...string) *node {
	t.Helper()
	if err := makeTools(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "") //nolint:usetesting // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{dir}
	n.run(t, append([]string{program, "--quiet", "simulate", "node"}, arguments...)...)
	return n
}

// sh runs a script of a row.
func (n *node) sh(t *testing.T, script string) {
	t.Helper()
	n.run(t, "sh", "-c", prelude+script)
}

// run runs a command that must end with 0, or with 3: it worked, and found something.
func (n *node) run(t *testing.T, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "LPUCTL_ROOT=node", "PATH="+tools+":"+os.Getenv("PATH"), "HOME="+n.dir)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if exit, exited := errors.AsType[*exec.ExitError](err); exited && slices.Contains([]int{3, 4}, exit.ExitCode()) {
		err = nil
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.TrimPrefix(strings.Join(command, " "), "sh -c "+prelude), err, out, errOut.String())
	}
	return string(out)
}

// problem is a finding, as it is printed.
type problem struct {
	Severity, ID, Subject, File, Message, Remedy string
}

func (p *problem) String() string {
	return fmt.Sprintf("%s %s %s: %s", p.ID, p.Subject, p.File, p.Message)
}

// link is a link of the diagnosis.
type link struct {
	Link, State string
	Findings    []problem
	Unseen      []struct{ What, Why string }
}

// doctor is what lpuctl doctor says. On a machine that is busy it may not get an answer in time, and is asked again.
func (n *node) doctor(t *testing.T) (links []link) {
	t.Helper()
	await.Until(t, "all links are seen", func() error {
		var said struct {
			Kind  string
			Links []link
		}
		out := n.run(t, program, "doctor", "-o", "json")
		if err := json.Unmarshal([]byte(out), &said); err != nil || said.Kind != "Diagnosis" || len(said.Links) == 0 {
			t.Fatalf("lpuctl doctor -o json: %v: %s", err, out)
		}
		links = said.Links
		return late(links)
	})
	return links
}

// late is what was not looked at in time.
func late(links []link) error {
	for i := range links {
		for _, u := range links[i].Unseen {
			if strings.Contains(u.Why, "no answer within") {
				return fmt.Errorf("%s: %s", u.What, u.Why)
			}
		}
		for _, p := range links[i].Findings {
			if p.ID == "read-stalled" || p.ID == "files-stalled" || p.ID == "mount-stalled" {
				return errors.New(p.String())
			}
		}
	}
	return nil
}

// broken returns the first link that is broken, and its first error. If none is, it returns the first that has a warning; nil: none has.
func broken(links []link) (*link, *problem) {
	for _, state := range []string{"broken", "warning"} {
		for i := range links {
			if l := &links[i]; l.State == state {
				worst := l.worst()
				return l, worst
			}
		}
	}
	return nil, nil
}

// worst is the first error of a link, or else its first warning.
func (l *link) worst() *problem {
	for _, severity := range []string{"error", "warning"} {
		for i := range l.Findings {
			if l.Findings[i].Severity == severity {
				return &l.Findings[i]
			}
		}
	}
	return nil
}

// complaints are the findings that are more than notes.
func complaints(links []link) (all []string) {
	for _, l := range links {
		for _, p := range l.Findings {
			if p.Severity != "note" {
				all = append(all, l.Link+": "+p.String()+"\n  "+p.Remedy)
			}
		}
	}
	return all
}

var (
	command = regexp.MustCompile(`^(sudo|lpuctl|chmod|chown|rm|mv|echo|ln|sed|mknod|mkdir|setfacl|` +
		strings.ReplaceAll(standIns, " ", "|") + `) `)
	ofHost = regexp.MustCompile(`(^|[ =>])/(sys|dev|etc|run|var|opt)/`)
)

// commands are the commands of a remedy, as a reader takes them out of it: of several ways the first, between semicolons, after a colon
// if there are words before them.
func commands(remedy string) (all []string) {
	for way := range strings.SplitSeq(remedy, ", or ") {
		for clause := range strings.SplitSeq(way, "; ") {
			if _, after, ok := strings.Cut(clause, ": "); ok {
				clause = after
			}
			if command.MatchString(clause) {
				all = append(all, clause)
			}
		}
		if len(all) > 0 {
			break
		}
	}
	return all
}

// carry runs the commands of a remedy as they were printed. A path of the machine, which is one of the kernel, is that of the node.
func (n *node) carry(t *testing.T, remedy string) {
	t.Helper()
	all := commands(remedy)
	if len(all) == 0 {
		t.Fatalf("the remedy has no command: %s", remedy)
	}
	for _, each := range all {
		n.run(t, "sh", "-c", ofHost.ReplaceAllString(each, "${1}node/$2/"))
	}
}
