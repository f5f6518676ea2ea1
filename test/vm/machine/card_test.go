package machine

import (
	"testing"
	"time"
)

// TestFunctionsAreReset: what the guest has set is gone after a reset, but the link stays; and while a reset takes its time, or a card is
// gone, all reads are ones and no write has an effect.
func TestFunctionsAreReset(t *testing.T) {
	const command, allOnes = 0x04, 0xffff
	set := func(f *function) { f.write(command, 0x0002, 2) }
	answers := func(f *function) bool { return f.read(0, 2) == 0x10ee }
	for name, c := range map[string]struct {
		do      func(*function)
		command uint64 // what the register has afterwards
		answers bool
	}{
		"nothing":       {func(*function) {}, 0x0002, true},
		"a quick reset": {func(f *function) { f.write(deviceControl, startReset, 2) }, 0, true},
		"a slow reset":  {func(f *function) { f.obey("resets", 3600_000, 0); f.write(deviceControl, startReset, 2); set(f) }, allOnes, false},
		"after a slow reset": {func(f *function) {
			f.obey("resets", 3600_000, 0)
			f.write(deviceControl, startReset, 2)
			f.away = time.Time{}
		}, 0, true},
		"a reset of the bus": {func(f *function) { f.do(busReset, nil) }, 0, true},
		"gone":               {func(f *function) { f.obey("gone", 1, 0); set(f) }, allOnes, false},
		"gone and back":      {func(f *function) { f.obey("gone", 1, 0); f.write(command, 0, 2); f.obey("gone", 0, 0) }, 0x0002, true},
		"away":               {func(f *function) { f.obey("away", 3600_000, 0) }, allOnes, false},
		"away and back":      {func(f *function) { f.obey("away", 3600_000, 0); f.obey("away", 0, 0) }, 0x0002, true},
	} {
		f := newCard(false)[1]
		f.obey("link", 1, 4)
		set(f)
		c.do(f)
		if got := f.read(command, 2); got != c.command || answers(f) != c.answers {
			t.Errorf("%s: the command register is %#x, it answers: %v", name, got, answers(f))
		}
		if got := f.read(linkStatus, 2); c.answers && got != uint64(linkState(1, 4)) {
			t.Errorf("%s: the link is %#x", name, got)
		}
	}
	if f := newCard(true)[1]; f.read(0x3d, 1) != 1 {
		t.Error("a sick card has no interrupt")
	} else if f.do(busReset, nil); f.read(0x3d, 1) != 1 {
		t.Error("a reset heals it")
	}
	if newCard(false)[1].obey("no such command", 0, 0) {
		t.Error("an unknown command is obeyed")
	}
}
