package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schema is a part of values.schema.json.
type schema struct {
	AdditionalProperties any                `json:"additionalProperties"`
	Properties           map[string]*schema `json:"properties"`
}

// TestValues: values.yaml and its schema have the same keys, an unknown key is refused at every level, and docs/helm.md has them all.
// What is in config is lpuctl's to judge.
func TestValues(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var values map[string]any
	if err := yaml.Unmarshal(read(filepath.Join(Dir, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	s := &schema{}
	if err := json.Unmarshal(read(filepath.Join(Dir, "values.schema.json")), s); err != nil {
		t.Fatal(err)
	}
	delete(s.Properties, "global") // Helm's own
	delete(values, "config")
	delete(s.Properties, "config")
	sameKeys(t, "values", values, s)
	page := string(read(filepath.Join(Top, "docs/helm.md")))
	for key := range values {
		if !strings.Contains(page, "`"+key+"`") && !strings.Contains(page, "`"+key+".") {
			t.Errorf("docs/helm.md does not have %s", key)
		}
	}
}

// sameKeys compares values that have keys of their own with their schema. An empty object has those that people give it.
func sameKeys(t *testing.T, path string, values map[string]any, s *schema) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s: an unknown key is not refused", path)
	}
	got, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(values))
	if !slices.Equal(got, want) {
		t.Errorf("%s: the schema has %v, values.yaml %v", path, got, want)
	}
	for key, value := range values {
		child, _ := value.(map[string]any)
		if property := s.Properties[key]; len(child) > 0 && property != nil && property.Properties != nil {
			sameKeys(t, path+"."+key, child, property)
		}
	}
}
