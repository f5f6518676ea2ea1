package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// example is a record as version 1 writes it. It must be readable for ever.
func example(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/v1.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var exampleFile = RecordFile("", "2f0c1a9e-7b1d-4c55-9a53-0d6f1c2b3a4d")

// TestARecordIsWrittenAsItWasRead: what is written is what is read, and what a later version added is kept.
func TestARecordIsWrittenAsItWasRead(t *testing.T) {
	later := strings.Replace(example(t), `"boot"`, `"bits": [
  1
 ],
 "boot"`, 1)
	for _, text := range []string{example(t), later} {
		r, err := exampleFile.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := exampleFile.Marshal(r)
		if diff := cmp.Diff(text, string(got)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

// TestRecordsThatNoStoreWrites: each is refused, with the reason.
func TestRecordsThatNoStoreWrites(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"apiVersion":       {"v1alpha1", "v9", "apiVersion"},
		"kind":             {"DRAClaim", "Leases", "kind"},
		"no version":       {`"version": 1`, `"version": 0`, "version 0 is none"},
		"later":            {`"version": 1`, `"version": 2`, "it is of version 2, and this program knows 1"},
		"state":            {"completed", "lost", `state "lost" is none`},
		"a path":           {"2f0c1a9e-7b1d-4c55-9a53-0d6f1c2b3a4d", "../../etc/cdi/x", "is not a claim"},
		"no name":          {`"name": "trainer"`, `"name": ""`, "is not a claim"},
		"no request":       {`"requests"`, `"wishes"`, "no request"},
		"no device":        {`"devices"`, `"things"`, `request "big/four": it has no device`},
		"variables":        {`"list"`, `"all"`, `request "big/four": variables "all": expected list or none`},
		"request twice":    {`"small"`, `"big"`, `request "big" is there twice`},
		"an LPU twice":     {"0000:44:00.1", "0000:41:00.1", "LPU 0000:41:00.1 is there twice"},
		"no LPU":           {`"0000:44:00.1"`, "", `request "small": device "lpu1-0000-44-00-1-00c0ffee" has no name, or no LPU`},
		"not an address":   {"0000:44:00.1", "lpu3", `"lpu3" is not a PCI address`},
		"a second record":  {"}\n", "}\n{}", "after top-level value"},
		"something behind": {"}\n", "}}", "after top-level value"},
	} {
		text := example(t)
		if i := strings.LastIndex(text, c.from); strings.HasSuffix(text, c.from) {
			text = text[:i] + c.to
		} else {
			text = strings.Replace(text, c.from, c.to, 1)
		}
		r, err := exampleFile.Parse([]byte(text))
		newer, _ := errors.AsType[*newerError](err)
		if err == nil || !strings.Contains(err.Error(), c.want) || r != nil || (newer != nil && newer.record != nil) != (name == "later") {
			t.Errorf("%s: %v, %v; want %q", name, r, err, c.want)
		}
	}
}

// FuzzParseRecord: whatever a file says, reading it ends, and what can be read is the same when it is written and read again.
func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(example(f)))
	f.Add([]byte(strings.Replace(example(f), `"version": 1`, `"version": 2, "later": {"a": [1]}`, 1)))
	f.Add([]byte(`{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","kind":"DRAClaim","version":1,"VERSION":2,"requests":[null]}`))
	f.Add([]byte(`null`))
	known := map[string]bool{}
	if text, err := json.Marshal(&Record{}); err != nil {
		f.Fatal(err)
	} else {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(text, &fields)
		for name := range fields {
			known[name] = true
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := understood(exampleFile.Parse(data))
		if err != nil {
			return
		}
		written, err := exampleFile.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := understood(exampleFile.Parse(written))
		if err != nil {
			t.Fatalf("%v:\n%s", err, written)
		}
		if diff := cmp.Diff(r, again, cmpopts.IgnoreUnexported(Record{})); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
		for name, value := range r.rest {
			if kept, ok := again.rest[name]; !ok || !known[name] && compact(value) != compact(kept) {
				t.Errorf("%s was %s and is %s", name, value, kept)
			}
		}
	})
}

// understood is what can be understood of a record, though it may be of a later version.
func understood(r *Record, err error) (*Record, error) {
	if newer, ok := errors.AsType[*newerError](err); ok && newer.record != nil {
		return newer.record, nil
	}
	return r, err
}

func compact(text json.RawMessage) string {
	var value any
	_ = json.Unmarshal(text, &value)
	return fmt.Sprint(value)
}
