package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestConfigFileAtRest: a change is taken once, and not while the file is being written or is away for a moment.
func TestConfigFileAtRest(t *testing.T) {
	name := filepath.Join(t.TempDir(), "config.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	a := &app{App: cli.App{ConfigFile: name}}
	f := a.followConfig()
	expect := func(what string, looks ...bool) {
		t.Helper()
		for i, want := range looks {
			if got := f.look(); got != want {
				t.Errorf("%s: look %d: changed is %t", what, i, got)
			}
		}
	}
	away := func(what string) {
		t.Helper()
		if err := os.Rename(name, name+"~"); err != nil {
			t.Fatal(err)
		}
		expect(what, false)
	}
	away("away at the first look")
	if err := os.Rename(name+"~", name); err != nil {
		t.Fatal(err)
	}
	f = a.followConfig()
	expect("as it was", false, false)
	put("b")
	expect("another one", false, true, false)
	put("c")
	expect("a half", false)
	put("cc")
	expect("the whole", false, true, false)
	away("away")
	put("d")
	expect("back", false, true, false)
}

// TestServeSeesAChangeWhileItStarts: what is changed after serve has read the file, and before it follows it, is read as well.
func TestServeSeesAChangeWhileItStarts(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2}).Write(root); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "config.yaml")
	put := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	put("serve: {interval: 1s}\n")
	changed := false
	env := func(key string) (string, bool) {
		if key == cli.SpecDirVariable && !changed { // it is asked for when the file has been read
			changed = true
			put("serve: {interval: 2s, listen: ''}\n")
		}
		return "", false
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	log, write := io.Pipe()
	go func() {
		args := []string{"--root", root, "--config", name, "serve", "--listen", "", "--plugin-dir", "/", "--device-list-strategy", "device-specs"}
		run(ctx, args, io.Discard, write, env)
		_ = write.Close()
	}()
	began, seen := time.Now(), false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "read the config file again") {
			t.Log("seen after ", time.Since(began))
			seen = true
			cancel()
		}
	}
	if !seen {
		t.Error("the change is not seen")
	}
}
