package nearest

import "testing"

func TestWord(t *testing.T) {
	candidates := []string{"apiVersion", "kind", "cdi", "models", "specDir"}
	for typed, want := range map[string]string{
		"model":      "models",
		"specdir":    "specDir",
		"spec_dir":   "specDir",
		"kind":       "kind",
		"cdl":        "cdi",
		"zebra":      "",
		"":           "",
		"apiversion": "apiVersion",
	} {
		if got := Word(typed, candidates); got != want {
			t.Errorf("Word(%q) = %q, want %q", typed, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"ab", "ba", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
