package pci

import (
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/long"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Address{
		"0000:b1:00.1":  {0, 0xb1, 0, 1},
		"0000:B1:1F.7":  {0, 0xb1, 0x1f, 7},
		"10000:01:00.0": {0x10000, 1, 0, 0},
		"ffff:ff:1f.7":  {0xffff, 0xff, 0x1f, 7},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, err, want)
		}
		if got.String() != strings.ToLower(text) {
			t.Errorf("%q comes back as %q", text, got)
		}
	}
	for _, text := range []string{
		"", "0000", "b1:00.1", "0000:b1:00", "0000:b1:00:1", "0000:b1:00.8", "0000:b1:20.0", "0000:b1:0.1", "000:b1:00.1",
		"00000:b1:00.1", "0000:b1:00.1 ", "0000:b1:00.-1", "+000:b1:00.1", "0000:b1:00.1\n", "123456789:00:00.0", "0000:g1:00.1",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

func TestAddressRoundTripAndOrder(t *testing.T) {
	random := long.Rand(t)
	var addresses []Address
	for range long.Rounds(t, 5000) {
		a := Address{uint32(random.IntN(0x20000)), uint8(random.IntN(256)), uint8(random.IntN(32)), uint8(random.IntN(8))}
		back, err := Parse(a.String())
		if err != nil || back != a {
			t.Fatalf("%v comes back as %v, %v", a, back, err)
		}
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, Address.Compare)
	for i := 1; i < len(addresses); i++ {
		a, b := addresses[i-1], addresses[i]
		if a.Domain > b.Domain || a.Domain == b.Domain && a.Bus > b.Bus {
			t.Fatalf("%v sorts before %v", a, b)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0000:b1:00.1")
	f.Add("10000:01:00.0")
	f.Add("::.")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := Parse(text)
		if err == nil && a.String() != strings.ToLower(text) {
			t.Errorf("%q comes back as %q", text, a)
		}
	})
}
