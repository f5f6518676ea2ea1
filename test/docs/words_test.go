package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestErrorWordsAreOurs: each message of lpuctl on the page is in the source, so that a change of its words is seen. So are the words of
// policies in the manifests.
func TestErrorWordsAreOurs(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"cmd", "internal", "pkg", "packaging/kubernetes", "packaging/helm"} {
		if err := filepath.WalkDir(filepath.Join(top, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") {
				return err
			}
			switch filepath.Ext(path) {
			case ".go":
				literals(t, path, &source)
			case ".yaml":
				text, err := os.ReadFile(path)
				source.Write(text)
				return err
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := Messages(filepath.Join(top, ErrorWords))
	if err != nil {
		t.Fatal(err)
	}
	all, ours := source.String(), 0
	for _, program := range []string{"lpuctl on a host", "lpuctl serve and lpuctl-dra"} {
		for _, message := range messages[program] {
			if message == "sudo: lpuctl: command not found" || strings.HasPrefix(message, "lease.sock: ") {
				continue // sudo's, and the kernel's
			}
			for _, part := range Parts(message) {
				if ours++; !strings.Contains(all, part) {
					t.Errorf("%s: lpuctl does not print %q, of %q", ErrorWords, part, message)
				}
			}
		}
	}
	if ours < 40 {
		t.Errorf("%s has %d messages of ours", ErrorWords, ours)
	}
}

// literals adds the texts in a file of Go.
func literals(t *testing.T, path string, to *strings.Builder) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING {
			value, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			to.WriteString(value + "\n")
		}
		return true
	})
}

// TestErrorWordsOfOthers: the words that users of container runtimes, of Kubernetes and of other cards have searched for are on the page.
func TestErrorWordsOfOthers(t *testing.T) {
	page := readPage(t, ErrorWords)
	for _, words := range []string{
		"unresolvable CDI devices", "failed to stat CDI host device", "no such file or directory", "not a device node",
		"could not select device driver \"cdi\" with capabilities: []", "capabilities: [[]]", "CDI device injection failed",
		"error gathering device information while adding custom device", "error stat'ing file", "No such device", "Operation not permitted",
		"systemctl daemon-reload", "hostPath type check failed", "no healthy devices present; cannot allocate unhealthy devices",
		"requested number of devices unavailable", "previously allocated devices are no longer healthy", "UnexpectedAdmissionError",
		"bind: permission denied", "SELinux", "privileged", "Compose", "command not found", "mlock: ENOMEM", "vfio-pci", "factory image",
		"`/etc/cdi` is missing", "Talos", "rke2", "GPU operator", "reboot", "driver upgrade", "Terminating",
		"not found in the list of registered",
		"`--restart`", "`cdi_spec_dirs`", "Unknown runtime specified", "Error: stat hyperaccel.ai/lpu=NAME",
		"Another plugin with the same device files",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("%s does not have %q", ErrorWords, words)
		}
	}
	if n := len(strings.Fields(page)); n > 2400 {
		t.Errorf("%s has %d words", ErrorWords, n)
	}
}
