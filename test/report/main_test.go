package main

import (
	"io"
	"strings"
	"testing"
)

// TestReport: a skipped test is named with its reason and counted. It is a failure where it is not on the list of those
// that may be skipped, and so is a test of the list that is not skipped.
func TestReport(t *testing.T) {
	const events = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":1}
{"Action":"skip","Package":"without tests"}
`
	for name, c := range map[string]struct {
		may    skips
		failed bool
		says   string
	}{
		"all may be skipped":  {nil, false, ""},
		"none may be skipped": {skips{}, true, "p TestB was skipped"},
		"it may be skipped":   {skips{"p TestB": true}, false, ""},
		"another may":         {skips{"p TestB": true, "p TestA": true}, true, "p TestA was not skipped"},
		"only another may":    {skips{"q TestB": true}, true, "p TestB was skipped"},
	} {
		var out strings.Builder
		failed, err := report(strings.NewReader(events), &out, c.may)
		if failed != c.failed || err != nil {
			t.Errorf("%s: failed %v, %v", name, failed, err)
		}
		for _, want := range []string{"b_test.go:7: needs root\n", "1 passed, 0 failed, 1 skipped\n", c.says} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
	}
}

// TestSlowest: the tests that took longest are named, but no part of a test.
func TestSlowest(t *testing.T) {
	const events = `{"Action":"pass","Package":"p","Test":"TestA/part","Elapsed":9}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0.5}
{"Action":"pass","Package":"q","Test":"TestC","Elapsed":3}
`
	var out strings.Builder
	if failed, err := report(strings.NewReader(events), &out, nil); failed || err != nil {
		t.Errorf("failed %v, %v", failed, err)
	}
	const want = "    3.0 s  q TestC\n    2.0 s  p TestA\n4 passed, 0 failed, 0 skipped\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}

// TestFailures: the last lines name what failed.
func TestFailures(t *testing.T) {
	const events = `{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
`
	var out strings.Builder
	if failed, err := report(strings.NewReader(events), &out, nil); !failed || err != nil {
		t.Errorf("failed %v, %v", failed, err)
	}
	if want := "1 passed, 1 failed, 0 skipped\nfailed: p TestA\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s\nwant at the end\n%s", &out, want)
	}
}

// TestProcessEnds: what a test said is not lost when the process ends before it, as by a panic of another goroutine, nor when its
// machine does, so that not even the package ends.
func TestProcessEnds(t *testing.T) {
	const fails = `{"Action":"fail","Package":"p","Elapsed":1}`
	const events = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: Write called after TestA has completed\n"}
{"Action":"output","Package":"q","Test":"TestC","Output":"what another package says\n"}
` + fails
	var out strings.Builder
	failed, err := report(strings.NewReader(events), &out, nil)
	if !failed || err != nil {
		t.Errorf("failed %v, %v", failed, err)
	}
	const want = "fail  p (1.0 s)\np TestB did not end\npanic: Write called after TestA has completed\n" +
		"q TestC did not end\nwhat another package says\n1 passed, 0 failed, 0 skipped\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
	if failed, err := report(strings.NewReader(strings.TrimSuffix(events, fails)), io.Discard, nil); !failed || err != nil {
		t.Errorf("failed %v, %v, where no package ends", failed, err)
	}
}

func TestReadSkips(t *testing.T) {
	const list = "# A comment.\n\nuser p TestA # needs root\nroot p TestB/x # is for users\nboth q TestC # needs a card\n"
	for who, want := range map[string]string{"user": "p TestA", "root": "p TestB/x"} {
		may, err := readSkips(list, who)
		if err != nil || len(may) != 2 || !may[want] || !may["q TestC"] {
			t.Errorf("%s: %v, %v", who, may, err)
		}
	}
	for _, bad := range []string{"user p TestA", "user p # two", "nobody p TestA # who", "user p TestA TestB # four"} {
		if _, err := readSkips(bad, "user"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
