package simulate

import (
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// find returns the item of that name. The error lists all names and suggests the one that was meant.
func find[T any](what, name string, items []T, nameOf func(T) string) (T, error) {
	var names []string
	for _, item := range items {
		if nameOf(item) == name {
			return item, nil
		}
		names = append(names, nameOf(item))
	}
	suggestion := ""
	if meant := nearest.Word(name, names); meant != "" {
		suggestion = fmt.Sprintf("; did you mean %q?", meant)
	}
	var none T
	return none, fmt.Errorf("unknown %s %q (known: %s)%s", what, name, strings.Join(names, ", "), suggestion)
}
