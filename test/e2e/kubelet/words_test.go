package kubelet

import (
	"bytes"
	"os"
	"testing"

	"github.com/hyperaccel/lpuctl/test/docs"
)

// TestErrorWords: these programs have the messages of docs/error-words.md, other than those of the kernel and of Go's library.
func TestErrorWords(t *testing.T) {
	programs := []string{kubernetes("kubelet"), kubernetes("kube-scheduler"), os.Getenv("CONTAINERD") + "/containerd"}
	need(t, programs...)
	var text []byte
	for _, program := range programs {
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, content...)
	}
	messages, err := docs.Messages("../../../" + docs.ErrorWords)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]bool{"not found in the list of registered DRA plugins": true} // an older kubelet's
	for _, part := range []string{"nothing", "/run/lpuctl/ring", "listen unix", "dial unix"} {
		others[part] = true
	}
	for _, program := range []string{"kubelet and scheduler", "containerd, nerdctl and CRI-O"} {
		for _, message := range messages[program] {
			for _, part := range docs.Parts(message) {
				if !others[part] && !bytes.Contains(text, []byte(part)) {
					t.Errorf("none of %v prints %q, of %q", programs, part, message)
				}
			}
		}
	}
}
