package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/node"
)

// TestSandboxesMayWriteTheState: the units and the DaemonSet see everything else read-only.
func TestSandboxesMayWriteTheState(t *testing.T) {
	for file, line := range map[string]string{
		"systemd/lpuctl-cdi-refresh.service": "\nStateDirectory=" + filepath.Base(node.StateDir) + "\n",
		"systemd/lpuctl-serve.service":       "\nStateDirectory=" + filepath.Base(node.StateDir) + "\n",
		"packaging/kubernetes/lpuctl.yaml":   "mountPath: /host" + node.StateDir + "}\n",
	} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s: no %q (%v)", file, line, err)
		}
	}
}
