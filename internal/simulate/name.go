package simulate

import (
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// InvalidError says why there is no such simulated node, and what to do about it.
type InvalidError struct {
	Problem string // such as "513 LPUs are too many"
	Remedy  string // an instruction, such as "give a number from 1 to 512"
}

// Error is the problem without the remedy.
func (e *InvalidError) Error() string { return e.Problem }

func invalid(remedy, problem string, args ...any) error {
	return &InvalidError{fmt.Sprintf(problem, args...), remedy}
}

// find returns the item of that name. The error suggests the name that was meant, or
// lists all names.
func find[T any](kind, name string, items []T, nameOf func(T) string) (T, error) {
	var names []string
	for _, item := range items {
		if nameOf(item) == name {
			return item, nil
		}
		names = append(names, nameOf(item))
	}
	remedy := "choose one of " + strings.Join(names, ", ")
	if meant := nearest.Word(name, names); meant != "" {
		remedy = "did you mean " + meant + "?"
	}
	var none T
	return none, invalid(remedy, "unknown %s %q", kind, name)
}
