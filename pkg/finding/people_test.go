package finding

import (
	"slices"
	"testing"
)

// TestForPeople: the cause comes first, what only repeats it is left out, and what several have
// alike is one line.
func TestForPeople(t *testing.T) {
	var list List
	for _, card := range []struct{ name, address string }{
		{"lpu2", "0000:45:00.1"}, {"lpu3", "0000:46:00.1"}, {"lpu5", "10000:84:00.1"},
	} {
		message := "no card at " + card.address + ": the cables of " + card.name + " are dead"
		list.Add(RingAbsentCard, card.name, message, "").At("/etc/lpuctl/ring.yaml", 4)
	}
	list.Add(RingAbsentCard, "lpu7", "no card at 0000:86:00.1: the cables of lpu7 are dead", "").At("/etc/lpuctl/ring.yaml", 5)
	list.Add(RingAbsentCard, "lpu8", "no card at 0000:87:00.1: the cables of lpu8 are dead", "").At("/etc/lpuctl/ring.yaml", 5)
	list.Add(RingAbsentCard, "lpu9", "no card at 0000:88:00.1: the cables of lpu9 are dead", "").At("/etc/lpuctl/ring.yaml", 6)
	list.Add(Absent, "lpu2", "there is no card at 0000:45:00.1, which the ring table names", "")
	list.Add(NoDriver, "lpu1", "no driver is bound to it", "echo 1")
	list.Add(Absent, "lpu3", "there is no card at 0000:46:00.1, which the ring table names", "")
	list.Add(NoDriver, "lpu4", "no driver is bound to it", "echo 4")
	list.Add(Gone, "lpu5", "there is no card at 10000:84:00.1, where one was before", "")
	list.Add(RingUnknownCard, "lpu10", "no card has the name lpu10", "").At("/etc/lpuctl/ring.yaml", 7)
	list.Add(RingUnknownCard, "lpu11", "no card has the name lpu11", "").At("/etc/lpuctl/ring.yaml", 8)
	list.Add(StaleDevice, "lpu0", "it is not in the machine", "")
	list.Add(StaleDevice, "lpu0-1", "it is not in the machine", "")
	before := slices.Clone(list)
	var got []string
	for _, f := range list.ForPeople() {
		got = append(got, f.String())
	}
	want := []string{
		"error: lpu2 and lpu3: there is no card at 0000:45:00.1 and 0000:46:00.1, which the ring table names [absent]",
		"error: lpu1: no driver is bound to it [no-driver]",
		"error: lpu4: no driver is bound to it [no-driver]",
		"error: lpu5: there is no card at 10000:84:00.1, where one was before [gone]",
		"warning: lpu0 and lpu0-1: it is not in the machine [stale-device]",
		"warning: lpu7, lpu8 and lpu9: /etc/lpuctl/ring.yaml: no card at 0000:86:00.1, 0000:87:00.1 and 0000:88:00.1: " +
			"the cables of lpu7, lpu8 and lpu9 are dead [ring-absent-card]",
		"error: lpu10: /etc/lpuctl/ring.yaml:7: no card has the name lpu10 [ring-unknown-card]",
		"error: lpu11: /etc/lpuctl/ring.yaml:8: no card has the name lpu11 [ring-unknown-card]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if !slices.Equal(list, before) {
		t.Error("the list itself was changed, which documents print")
	}
}
