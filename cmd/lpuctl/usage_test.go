package main

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/usage"
)

// TestUsageAsCSV: encoding/csv reads what is written, whatever a name has in it, and no program for tables takes a name for a formula.
func TestUsageAsCSV(t *testing.T) {
	t.Parallel()
	for name, cell := range map[string]string{
		"anna": "anna", "": "", "=HYPERLINK(1)": "'=HYPERLINK(1)", "+1": "'+1", "-1": "'-1", "@x": "'@x",
		`a"b,c`: `a"b,c`, "a\nb\r\nc": "a\nb\nc",
	} {
		r := &usage.Report{Users: []usage.User{{
			UID: 1000, Name: name, Sum: usage.Sum{Leases: 3, Leased: 1.5, Open: 0.25}, Waits: 2, MeanWait: 1, LongestWait: 1.5,
			LPUs: []usage.LPUPart{{LPU: usage.LPU{Address: "0000:43:00.1", Name: "lpu0"}, Sum: usage.Sum{Leases: 3, Leased: 1.5, Open: 0.25}}},
		}}}
		var out bytes.Buffer
		if err := writeUsageCSV(&out, r, false); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) != 3 || len(rows[0]) != len(rows[1]) {
			t.Fatalf("%q: %v, %v", name, rows, err)
		}
		want := cell + "|1000|all||3|1.500000|0.250000|2|1.000000|1.500000\n" + cell + "|1000|lpu0|0000:43:00.1|3|1.500000|0.250000|||"
		if got := strings.Join(rows[1], "|") + "\n" + strings.Join(rows[2], "|"); got != want {
			t.Errorf("%q:\n%s", name, got)
		}
	}
}

// TestMoments: how long ago, a day or a moment.
func TestMoments(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"30d": now.Add(-30 * 24 * time.Hour), "90m": now.Add(-90 * time.Minute), "0s": now,
		"2026-03-01T08:00:00Z": time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), "2026-03-01": time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local),
		"": {}, "-1h": {}, "d": {}, "1.5d": {}, "-3d": {}, "99999999d": {}, "tomorrow": {},
	} {
		var got time.Time
		if err := momentBefore(now, &got)(text); !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
