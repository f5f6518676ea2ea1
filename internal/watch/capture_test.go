package watch

import (
	"os"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// The captures of testdata.
const u55c, e1000e = "sysfs-u55c-x8-iommu.tar.gz", "sysfs-e1000e-aer-x8.tar.gz"

// captureModels are the models of the cards in the captures.
func captureModels(t *testing.T) []discovery.Model {
	t.Helper()
	data, err := os.ReadFile("../../testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Models     []discovery.Model `json:"models"`
	}
	if _, faults := strictyaml.Decode(data, &config); len(faults) > 0 {
		t.Fatal(faults)
	}
	return discovery.MergeModels(discovery.BuiltinModels(), config.Models)
}
