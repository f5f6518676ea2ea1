package main

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestReadOnlyMappings(t *testing.T) {
	t.Parallel()
	got := readOnly(strings.NewReader(`00400000-01b9a000 r-xp 00000000 fe:00 11010333                           /usr/bin/lpuctl-dra
01b9a000-036c6000 r--p 0179a000 fe:00 11010333                           /usr/bin/lpuctl-dra
036c6000-03754000 rw-p 032c6000 fe:00 11010333                           /usr/bin/lpuctl-dra
7fc3155d0000-7fc315900000 rw-p 00000000 00:00 0
7fc3155d0000-7fc315900000 r--p 00000000 fe:00 7                          /lib/other
`), "/usr/bin/lpuctl-dra")
	if want := []mapping{{0x400000, 0x1b9a000}, {0x1b9a000, 0x36c6000}}; !slices.Equal(got, want) {
		t.Errorf("%x", got)
	}
}

// TestShed holds that the program goes on after it has given memory back.
func TestShed(t *testing.T) {
	shed()
	if _, err := os.Hostname(); err != nil {
		t.Error(err)
	}
}

func TestResident(t *testing.T) {
	t.Parallel()
	if got := resident(); got < 1<<20 || got == math.MaxInt {
		t.Errorf("%d bytes are resident", got)
	}
}
