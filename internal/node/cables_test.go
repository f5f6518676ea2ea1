package node_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/watch"
)

// cables is what metrics say of each cable of the ring: "0-1 1-2 down at 60", in seconds since the
// machine was started.
func (p *program) cables() string {
	p.w.Helper()
	var text bytes.Buffer
	p.w.must(node.WriteMetrics(&text, p.Metrics()...))
	var said []string
	for _, up := range regexp.MustCompile(`lpuctl_ring_link_up(\{a="lpu(.)",b="lpu(.)"\}) ([01])`).FindAllStringSubmatch(text.String(), -1) {
		cable := up[2] + "-" + up[3]
		since := regexp.MustCompile(`lpuctl_ring_link_down_timestamp_seconds` + regexp.QuoteMeta(up[1]) + ` 1000000(\d\d\d)\n`).
			FindStringSubmatch(text.String())
		switch {
		case up[4] == "0" && since != nil:
			cable += " down at " + since[1]
		case up[4] == "0" || since != nil:
			cable += " down or not"
		}
		said = append(said, cable)
	}
	return strings.Join(said, ", ")
}

// TestCables: metrics say which cable is down and since when: since the first of its LPUs that is not
// usable is not.
func TestCables(t *testing.T) {
	w := newWorld(t)
	start := func() *program {
		p := w.program()
		p.remember()
		records, err := p.Memory.Records()
		w.must(err)
		p.watcher = watch.New(w.root, watch.Options{Records: records}, w.sinceBoot)
		return p
	}
	p := start()
	p.update()
	for i, step := range []struct {
		change func() error
		want   string
	}{
		{nil, "0-1, 1-2, 2-3, 3-0"},
		{func() error { return w.machine.Unbind(1) }, "0-1 down at 200, 1-2 down at 200, 2-3, 3-0"},
		{func() error { return w.machine.Unplug(2) }, "0-1 down at 200, 1-2 down at 200, 2-3 down at 300, 3-0"},
		{func() error { p = start(); return nil }, "0-1 down at 200, 1-2 down at 200, 2-3 down at 300, 3-0"},
		{func() error { return w.machine.Bind(1) }, "0-1, 1-2 down at 300, 2-3 down at 300, 3-0"},
		{func() error { return w.machine.Replug(2) }, "0-1, 1-2, 2-3, 3-0"},
	} {
		w.now = time.Unix(1e9+100*int64(i+1), 0)
		if step.change != nil {
			w.must(step.change())
		}
		for range 5 { // a card that comes back has to stay for a moment
			p.update()
			w.now = w.now.Add(time.Second)
		}
		if got := p.cables(); got != step.want {
			t.Errorf("step %d: %s; want %s", i, got, step.want)
		}
	}
	w.must(w.machine.Unbind(3))
	p.update()
	p.Now = func() time.Time { return w.now.Add(200*time.Second + time.Millisecond) } // somebody sets the clock
	if got, want := p.cables(), "0-1, 1-2, 2-3 down at 805, 3-0 down at 805"; got != want {
		t.Errorf("after the clock was set: %s; want %s", got, want)
	}
}

// TestNoSeriesWithoutEnd: a table that cables more cards than any machine has makes no more series.
func TestNoSeriesWithoutEnd(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	inv := w.scan()
	r := &inv.Rings[0]
	for i := len(inv.LPUs); i < 1000; i++ {
		l := inv.LPUs[0]
		l.Name, l.Index, l.Address.Domain = fmt.Sprint("lpu", i), i, uint32(i)
		inv.LPUs, r.Members = append(inv.LPUs, l), append(r.Members, l.Name)
	}
	if p.Update(t.Context(), node.Spec{ReadOnly: true}, found(inv)) == nil {
		t.Fatal(p.log)
	}
	var text bytes.Buffer
	w.must(node.WriteMetrics(&text, p.Metrics()...))
	if got := strings.Count(text.String(), "\nlpuctl_ring_link_up{"); got != 512 {
		t.Errorf("%d cables have series", got)
	}
	if got := p.metric(`lpuctl_ring_links{state="up"}`); got != "1000" {
		t.Errorf("%s cables", got)
	}
}
