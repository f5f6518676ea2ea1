package versions

import (
	"fmt"
	"testing"
)

func TestRelease(t *testing.T) {
	for text, want := range map[string]string{
		"v2.2.9": "2.2.9 [2 2 9]", "1.6.20~ds1-1+deb12u1": "1.6.20~ds1-1+deb12u1 [1 6 20]",
		"5:28.2.2-1~debian.12~bookworm": "28.2.2-1~debian.12~bookworm [28 2 2]",
		"1.30":                          "1.30 [1 30 0]", "v2.4.0-beta.0+dirty": "2.4.0-beta.0+dirty [2 4 0]",
		"": " [0 0 0]", "(devel)": " [0 0 0]", "v2": " [0 0 0]", "1.7.0\x1b[2J": " [0 0 0]", "99999999999.1": " [0 0 0]",
	} {
		if r := Parse(text); fmt.Sprint(r.Text, " ", r.Number) != want {
			t.Errorf("%q: got %s %v, want %s", text, r.Text, r.Number, want)
		}
	}
	r := Parse("1.7.17")
	if r.Before("1.7") || r.Before("1.7.17") || !r.Before("1.7.18") || !r.Before("2.0") || Parse("1.9").Before("1.10") != true {
		t.Error("1.7.17 is ordered wrongly")
	}
	if !r.Within("-") || !r.Within("1.7-2.0") || r.Within("1.7-1.7.17") || r.Within("2.0-") {
		t.Error("1.7.17 is in the wrong spans")
	}
}
