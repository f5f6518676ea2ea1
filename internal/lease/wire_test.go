package lease

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// TestBadRequests: a request is exactly one of those that are known, within its bounds.
func TestBadRequests(t *testing.T) {
	const head = `{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1",`
	for name, c := range map[string]struct{ text, err string }{
		"no JSON":       {"hello", "invalid character"},
		"not UTF-8":     {head + "\"release\":{\"id\":\"r\xff\"}}", "not UTF-8"},
		"no version":    {`{"list":{}}`, "apiVersion"},
		"newer":         {`{"apiVersion":"lpuctl.hyperaccel.ai/v9","list":{}}`, "apiVersion"},
		"nothing":       {head + `"list":null}`, "0 requests"},
		"two":           {head + `"list":{},"release":{"id":"r1"}}`, "2 requests"},
		"two documents": {head + `"list":{}}{}`, "more than one"},
		"unknown key":   {head + `"list":{"uid":0}}`, "unknown field"},
		"forged":        {head + `"wish":{"count":1,"uid":0}}`, "unknown field"},
		"none":          {head + `"wish":{"count":0}}`, "count 0"},
		"many":          {head + `"wish":{"count":2000}}`, "count 2000"},
		"must":          {head + `"wish":{"count":1,"must":["0000:45:00.1","0000:46:00.1"]}}`, "2 LPUs must"},
		"twice":         {head + `"wish":{"count":2,"must":["0000:45:00.1","0000:45:00.1"]}}`, "twice"},
		"no address":    {head + `"wish":{"count":2,"must":["lpu0"]}}`, "lpu0"},
		"near":          {head + `"wish":{"count":2,"place":{"near":"me"}}}`, "near"},
		"NUMA":          {head + `"wish":{"count":2,"place":{"numaNode":1}}}`, "NUMA"},
		"negative":      {head + `"wish":{"count":2,"for":-1}}`, "time"},
		"command":       {head + `"wish":{"count":2,"command":"\u001b[2J"}}`, "command"},
		"for ever":      {head + `"reserve":{"count":2,"for":9223372036854775807,"reason":"x"}}`, "time"},
		"no time":       {head + `"reserve":{"count":2,"reason":"x"}}`, "time"},
		"no reason":     {head + `"reserve":{"count":2,"for":10000000000,"reason":" "}}`, "reason"},
		"escapes":       {head + `"reserve":{"count":2,"for":10000000000,"reason":"\u001b[2J"}}`, "reason"},
		"long reason":   {head + `"reserve":{"count":2,"for":10000000000,"reason":"` + strings.Repeat("x", 201) + `"}}`, "reason"},
		"id":            {head + `"release":{"id":"l1"}}`, "id"},
		"no lease":      {head + `"end":{"id":"r1"}}`, "id of a lease"},
		"id 0":          {head + `"extend":{"id":"r0","for":10000000000}}`, "id"},
		"container":     {head + `"bind":{"container":"../../x"}}`, "container"},
		"oversized":     {head + `"list":{}}` + strings.Repeat(" ", maxRequest), "longer than"},
	} {
		if _, err := ParseRequest([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	node := 1
	for _, r := range []Request{
		{Wish: &Wish{
			Selection: Selection{
				Count: 2, Must: []pci.Address{address(1)}, Connected: true, Place: allocate.Place{Near: allocate.SameNUMA, NUMANode: &node},
			},
			For: time.Hour, Wait: true, DryRun: true,
		}},
		{Bind: &Bind{strings.Repeat("a", 64)}},
		{Reserve: &Reserve{Selection{Count: 1, Place: allocate.Place{Near: allocate.SameSwitch}}, time.Hour, "a demo"}},
		{Release: &Release{"r1"}},
		{Extend: &Extend{"r2", time.Minute}},
		{List: &struct{}{}},
		{ReleaseAll: &struct{}{}},
		{End: &End{"l7"}},
		{Queue: &QueueFrom{64}},
		{Retry: &Retry{address(1)}},
	} {
		r.APIVersion = statefile.APIVersion
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRequest(data)
		if err != nil {
			return
		}
		if text, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		} else if again, err := ParseRequest(text); err != nil && !strings.Contains(err.Error(), "longer") || err == nil && !cmp.Equal(r, again) {
			t.Fatalf("%s: %v", text, err)
		}
		b := NewBook()
		v := (&glimpse{began: 5, pool: 0xff}).view()
		v.Limits.LPUs = 3
		b.See(10, v)
		switch {
		case r.Wish != nil:
			b.Wish(20, 1, Peer{UID: 1}, *r.Wish)
		case r.Reserve != nil:
			b.Reserve(20, 1, Peer{}, *r.Reserve)
		}
		if out, _ := b.Outbox(); (r.Wish != nil || r.Reserve != nil) && len(out) != 1 {
			t.Fatalf("%s: %d answers", data, len(out))
		}
	})
}
