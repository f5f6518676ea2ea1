package finding

import "errors"

// RemedyOf returns what to do about an error that knows it, by its method Remedy; "" for
// any other.
func RemedyOf(err error) string {
	type remediable interface {
		error
		Remedy() string
	}
	if known, ok := errors.AsType[remediable](err); ok {
		return known.Remedy()
	}
	return ""
}
