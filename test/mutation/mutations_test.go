package main

import "testing"

// TestParts: each mutation is in one part.
func TestParts(t *testing.T) {
	for i := range 7 {
		in := 0
		for _, text := range []string{"300/3", "301/3", "302/3"} {
			p, err := readPart(text)
			if err != nil {
				t.Fatal(err)
			}
			if p.has(i) {
				in++
			}
		}
		if all, err := readPart(""); in != 1 || err != nil || !all.has(i) {
			t.Errorf("%d is in %d parts: %v", i, in, err)
		}
	}
	for _, text := range []string{"1", "1/0", "-1/3", "a/b"} {
		if _, err := readPart(text); err == nil {
			t.Errorf("%q is a part", text)
		}
	}
}

// TestEveryFixIsThere: a mutation whose text is not in the source any more would prove nothing.
func TestEveryFixIsThere(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range mutations() {
		if _, _, err := m.apply(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("%s is there twice", m.name)
		}
		names[m.name] = true
	}
}
