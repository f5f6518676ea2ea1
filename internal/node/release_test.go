package node

import (
	"testing"

	"github.com/hyperaccel/lpuctl/test/plant"
)

func TestFileOfTheReleaseBefore(t *testing.T) {
	plant.Rewritten(t, Memory{}.healthFile(), "testdata/health.json")
}
