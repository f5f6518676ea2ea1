package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/test/scripts"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){program: main})
}

// TestScripts runs the scripts in testdata/script on simulated nodes.
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts.Run(t, program, map[string]scripts.Command{"leased": leased})
}

// leased has alice lease lpu2 of a node since it was started, and bob reserve lpu4: leased DIR.
func leased(ts *testscript.TestScript, _ bool, args []string) {
	root := ts.MkAbs(args[0])
	plant := func(file, kind, list string) {
		path := filepath.Join(root, file)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"boot":%q,"last":9,%s}`,
			statefile.APIVersion, kind, host.Now().Boot, list), 0o600))
	}
	const alices, bobs = `"lpus":[{"address":"0000:45:00.1","name":"lpu2"}]`, `"lpus":[{"address":"0000:83:00.1","name":"lpu4"}]`
	plant("run/lpuctl/leases.json", "Leases", fmt.Sprintf(
		`"leases":[{"id":"l7","uid":1000,"user":"alice","pid":12,%s,"since":1,"wish":{"count":1},"grant":{%[1]s,"reason":""}}]`, alices))
	plant("var/lib/lpuctl/leases.json", "Reservations", fmt.Sprintf(
		`"reservations":[{"id":"r8","uid":1001,"user":"bob","pid":1,%s,"reason":"a test","since":1,"until":%d}]`,
		bobs, host.SinceBoot()+time.Hour))
}
