package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoClusterClient holds out of lpuctl what would make each of its commands start two to three times slower. It belongs to lpuctl-dra,
// and what draws on the terminal to lpuctl-top.
func TestNoClusterClient(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("only %d packages", len(packages))
	}
	heavy := []string{"k8s.io/client-go", "k8s.io/apiserver", "k8s.io/dynamic-resource-allocation", "k8s.io/api", "k8s.io/apimachinery",
		"charm.land/bubbletea", "github.com/charmbracelet", "github.com/prometheus"}
	for _, name := range packages {
		for _, heavy := range heavy {
			if name == heavy || strings.HasPrefix(name, heavy+"/") {
				t.Errorf("lpuctl links %s", name)
			}
		}
	}
}
