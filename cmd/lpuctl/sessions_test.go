package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/docs"
)

// ours finds lpuctl at the begin of a command, where root runs it or from the source too.
var ours = regexp.MustCompile(`^(?:sudo )?(?:bin/)?lpuctl `)

// times are what lpuctl prints of the clock; pages have this one in their place.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

const aTime = "2027-03-01T12:00:00Z"

// anna finds who works in the tutorials: on a simulated node a user's name comes with the uid, which is that of who runs the test.
var anna = regexp.MustCompile(`anna\(\d+\)`)

// ofThisMachine finds what depends on who runs the test and where: how much memory a program may lock, and whether a simulated node has
// device files, and the arbiter sees all processes.
var ofThisMachine = regexp.MustCompile(
	`(?m)^(?:warning: memlock: .*|note: .*\[node-unverified\])\n  remedy: .*\n|^warning: the arbiter cannot see all processes: .*\n`)

// replaySession runs the commands of lpuctl in the sessions of a page, and holds what they print against the page. The page shows a
// directory by another name. Other programs are not run, and what they print stays. It returns how many commands the page has.
func replaySession(t *testing.T, path string, environment []string, shown, dir string) (commands int) {
	t.Helper()
	pageIs(t, path, docs.Replay(readText(t, path), func(command string) (string, bool) {
		commands++
		if !ours.MatchString(command) {
			return "", false
		}
		command = ours.ReplaceAllString(command, "lpuctl ")
		if shown != "" {
			command = strings.ReplaceAll(command, shown, dir)
		}
		said := ofThisMachine.ReplaceAllString(strings.ReplaceAll(output(t, command, environment), dir, shown), "")
		said = times.ReplaceAllString(said, aTime)
		if anna.MatchString(said) {
			said = align(t, anna.ReplaceAllString(said, "anna(1000)"))
		}
		return said, true
	}))
	return commands
}

// align puts the columns of a table below each other again.
func align(t *testing.T, table string) string {
	t.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(w, regexp.MustCompile(` {2,}`).ReplaceAllString(table, "\t")); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// output is what a command prints for people and programs. It may find something (3).
func output(t *testing.T, command string, environment []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	if failed, is := errors.AsType[*exec.ExitError](err); err != nil && (!is || failed.ExitCode() != cli.ExitFound) {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// pageIs: a page is this text, or is written so with LPUCTL_UPDATE=1.
func pageIs(t *testing.T, path, text string) {
	t.Helper()
	switch {
	case text == readText(t, path):
	case os.Getenv("LPUCTL_UPDATE") == "":
		name, _, _ := strings.Cut(t.Name(), "/")
		t.Errorf("%s is not what is so: LPUCTL_UPDATE=1 go test -run %s ./cmd/lpuctl", path, name)
	default:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTutorials: what lpuctl prints in the tutorials is what it prints on a simulated Orion server that has what the tutorial needs, and
// none has more than six commands.
func TestTutorials(t *testing.T) {
	pages, err := filepath.Glob("../../docs/start-*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(err, pages)
	}
	// The package of a runtime on the node, by the name of the page.
	packages := map[string]string{
		"start-podman.md":     "podman 4.3.1",
		"start-docker.md":     "docker-ce 28.3.3",
		"start-nerdctl.md":    "nerdctl 2.2.1",
		"start-kubernetes.md": "containerd 2.2.9",
		"start-shared.md":     "podman 4.3.1",
	}
	for _, path := range pages {
		t.Run(filepath.Base(path), func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "node")
			output(t, "lpuctl --quiet simulate "+root, nil)
			write := func(name, content string) {
				name = filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			if p := packages[filepath.Base(path)]; p != "" {
				program, version, _ := strings.Cut(p, " ")
				write("var/lib/dpkg/status", "Package: "+program+"\nStatus: install ok installed\nVersion: "+version+"\n\n")
				write("usr/bin/"+strings.Replace(program, "docker-ce", "dockerd", 1), "#!/bin/sh\n")
			}
			environment := []string{"LPUCTL_ROOT=" + root, "PATH=" + root + "/usr/bin:" + os.Getenv("PATH")}
			if filepath.Base(path) == "start-shared.md" {
				write("etc/passwd", fmt.Sprintf("anna:x:%d:0::/:/bin/sh\n", os.Getuid()))
				serveLeases(t, root, environment)
			}
			if n := replaySession(t, path, environment, "", root); n == 0 || n > 6 {
				t.Errorf("%s has %d commands", path, n)
			}
		})
	}
}

// serveLeases starts the arbiter of a node, until the test ends.
func serveLeases(t *testing.T, root string, environment []string) {
	t.Helper()
	socket := filepath.Join(root, "run/lpuctl/lease.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "lpuctl", "--log-level", "error", "lease", "serve", "--socket", socket)
	cmd.Env = append(os.Environ(), environment...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended it
	await.Until(t, "the arbiter listens", func() error {
		_, err := os.Stat(socket)
		return err
	})
}

// TestCommandsOfPages: each command of lpuctl that a page names is one, and has the flags that stand beside it.
func TestCommandsOfPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(?:sudo )?lpuctl ([a-z][^`]*)`")
	flag := regexp.MustCompile(`--([a-z][a-z-]+)`)
	root := newRootCommand(&app{})
	for _, path := range append(pages, readme) {
		for _, m := range named.FindAllStringSubmatch(readText(t, path), -1) {
			ours, _, _ := strings.Cut(m[1], " -- ")
			cmd, rest, err := root.Find(strings.Fields(ours))
			if err != nil || cmd == root || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				t.Errorf("%s: lpuctl %s: there is no such command", path, m[1])
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(ours, -1) {
				if cmd.Flag(f[1]) == nil && cmd.InheritedFlags().Lookup(f[1]) == nil {
					t.Errorf("%s: lpuctl %s: %s has no flag --%s", path, m[1], cmd.CommandPath(), f[1])
				}
			}
		}
	}
}
