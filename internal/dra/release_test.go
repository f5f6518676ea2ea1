package dra

import (
	"testing"

	"github.com/hyperaccel/lpuctl/test/plant"
)

func TestFileOfTheReleaseBefore(t *testing.T) {
	plant.Rewritten(t, (&Publisher{}).file(), "testdata/slices.json")
}
