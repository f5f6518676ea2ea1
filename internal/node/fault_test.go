package node

import (
	"errors"
	"io"
	"testing"
)

// TestLatestFault: an error is new once, until it is another one, or was over.
func TestLatestFault(t *testing.T) {
	var f LatestFault
	for i, test := range []struct {
		err   error
		isNew bool
	}{
		{nil, false}, {io.EOF, true}, {errors.New("EOF"), false}, {io.ErrClosedPipe, true}, {io.EOF, true}, {nil, false}, {io.EOF, true},
	} {
		if got := f.IsNew(test.err); got != test.isNew {
			t.Errorf("%d: %v is new: %t", i, test.err, got)
		}
	}
}
