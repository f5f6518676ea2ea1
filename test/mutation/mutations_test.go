package main

import "testing"

// TestEveryFixIsThere: a mutation whose text is not in the source any more would prove nothing.
func TestEveryFixIsThere(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range mutations() {
		if _, err := m.apply(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("%s is there twice", m.name)
		}
		names[m.name] = true
	}
}
