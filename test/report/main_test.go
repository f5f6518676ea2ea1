package main

import (
	"strings"
	"testing"
)

// TestReport: a skipped test is named with its reason and counted, and is a failure where all have to run.
func TestReport(t *testing.T) {
	const events = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":1}
{"Action":"skip","Package":"without tests"}
`
	for _, all := range []bool{false, true} {
		var out strings.Builder
		failed, err := report(strings.NewReader(events), &out, all)
		if failed != all || err != nil {
			t.Errorf("all %v: failed %v, %v", all, failed, err)
		}
		for _, want := range []string{"b_test.go:7: needs root\n", "1 passed, 0 failed, 1 skipped\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("all %v: no %q in\n%s", all, want, out.String())
			}
		}
	}
}
