package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/docs"
)

// TestPages: what lpuctl prints in the sessions of these pages is what it prints on simulated nodes: an Orion server that has its spec, and
// the nodes that a page makes in /tmp. What starts containers is not run.
func TestPages(t *testing.T) {
	for _, page := range []string{"allocation.md", "doctor.md"} {
		t.Run(page, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "node")
			output(t, "lpuctl --quiet simulate "+root, nil)
			output(t, "lpuctl --quiet --root "+root+" cdi refresh", nil)
			environment := []string{"LPUCTL_ROOT=" + root, "LPUCTL_WITHIN=" + await.Limit.String()}
			path, ran := filepath.Join("../../docs", page), 0
			pageIs(t, path, docs.Replay(readText(t, path), func(command string) (string, bool) {
				if strings.Contains(command, "doctor --run") {
					return "", false
				}
				ran++
				said := output(t, strings.ReplaceAll(command, "/tmp", dir), environment)
				return ofThisMachine.ReplaceAllString(strings.ReplaceAll(said, dir, "/tmp"), ""), true
			}))
			if ran == 0 {
				t.Errorf("%s has no command", path)
			}
		})
	}
}
