package long

import "testing"

func TestShort(t *testing.T) {
	t.Setenv("LPUCTL_LONG", "")
	t.Setenv("LPUCTL_SEED", "")
	if n := Rounds(t, 7); n != 7 {
		t.Errorf("%d rounds", n)
	}
	if a, b := Rand(t).Uint64(), Rand(t).Uint64(); a != b {
		t.Errorf("%d, and then %d", a, b)
	}
	if Takes(1, 3) || !Takes(12, 3) {
		t.Error("of three cases not one is tried")
	}
}

func TestLong(t *testing.T) {
	t.Setenv("LPUCTL_LONG", "10")
	t.Setenv("LPUCTL_SEED", "")
	if n := Rounds(t, 7); n != 70 {
		t.Errorf("%d rounds", n)
	}
	if !Takes(1, 3) {
		t.Error("not every case is tried")
	}
	if a, b := Rand(t).Uint64(), Rand(t).Uint64(); a == b {
		t.Errorf("%d twice", a)
	}
	t.Setenv("LPUCTL_SEED", "5")
	if a, b := Rand(t).Uint64(), Rand(t).Uint64(); a != b {
		t.Errorf("%d, and then %d of the same seed", a, b)
	}
}
