// Package examples tries the examples that are no Go programs, without root and without container
// tools.
package examples

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
	library "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/hyperaccel/lpuctl/internal/dra/plan"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// devices are the devices of a simulated node by their whole names, as the CDI library reads the
// spec.
func devices(t *testing.T) []string {
	t.Helper()
	root, dir := filepath.Join(t.TempDir(), "node"), t.TempDir()
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := cdi.Spec(inv, cdi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := cdi.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "lpu.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	cache, err := library.NewCache(library.WithSpecDirs(dir), library.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	return cache.ListDevices()
}

// TestIndex: the list has each file.
func TestIndex(t *testing.T) {
	index, files := string(read(t, "README.md")), 0
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Dir(file) == "." || strings.HasSuffix(file, "_test.go") {
			return err
		}
		files++
		if !strings.Contains(index, "]("+file+") | ") {
			t.Errorf("README.md does not list %s", file)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%v, %d examples", err, files)
	}
}

// TestQuadlet: the device is one of a node, and the unit that it waits for is ours. make e2e runs
// podman's generator on it.
func TestQuadlet(t *testing.T) {
	options, err := unit.DeserializeOptions(bytes.NewReader(read(t, "quadlet/lpu.container")))
	if err != nil {
		t.Fatal(err)
	}
	known, found := devices(t), map[string]int{}
	for _, o := range options {
		key := o.Section + "." + o.Name
		found[key]++
		switch key {
		case "Container.AddDevice":
			if !slices.Contains(known, o.Value) {
				t.Errorf("no node has the device %s", o.Value)
			}
		case "Unit.After":
			if _, err := os.Stat("../systemd/" + o.Value); err != nil {
				t.Error(err)
			}
		}
	}
	for _, key := range []string{"Container.AddDevice", "Container.Image", "Unit.After"} {
		if found[key] != 1 {
			t.Errorf("%s is there %d times", key, found[key])
		}
	}
}

// TestCompose: the file has no other keys than these, and its devices are those of a node.
func TestCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image   string
			Command []string
			Devices []string
			Ulimits map[string]int
		}
	}
	decoder := yamlv3.NewDecoder(bytes.NewReader(read(t, "compose/compose.yaml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	known := devices(t)
	for name, service := range file.Services {
		if service.Image == "" || len(service.Devices) == 0 {
			t.Errorf("%s: it has no image or no device", name)
		}
		for _, device := range service.Devices {
			if !slices.Contains(known, device) {
				t.Errorf("%s: no node has the device %s", name, device)
			}
		}
	}
	if len(file.Services) == 0 {
		t.Error("there is no service")
	}
}

// objects are the objects of a file by kind. A field that their types do not have is an error.
type objects struct {
	pods      []corev1.Pod
	templates []resourceapi.ResourceClaimTemplate
}

func decode(t *testing.T, file string) (all objects) {
	t.Helper()
	for text := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
		data, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var kind struct{ APIVersion, Kind string }
		if err := json.Unmarshal(data, &kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch kind.APIVersion + " " + kind.Kind {
		case " ": // a comment
		case "v1 Pod":
			all.pods = append(all.pods, strictly[corev1.Pod](t, file, data))
		case "resource.k8s.io/v1 ResourceClaimTemplate":
			all.templates = append(all.templates, strictly[resourceapi.ResourceClaimTemplate](t, file, data))
		default:
			t.Errorf("%s: there is a %s of %s", file, kind.Kind, kind.APIVersion)
		}
	}
	return all
}

func strictly[T any](t *testing.T, file string, data []byte) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(data, &object); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return object
}

// TestPod: the pod asks for nothing but the resource of the device plugin.
func TestPod(t *testing.T) {
	all := decode(t, "kubernetes/pod.yaml")
	if len(all.pods) != 1 || len(all.templates) != 0 || len(all.pods[0].Spec.Containers) != 1 {
		t.Fatalf("%d pods and %d templates", len(all.pods), len(all.templates))
	}
	limits := all.pods[0].Spec.Containers[0].Resources.Limits
	quantity, ok := limits[plugin.DefaultResource]
	if !ok || len(limits) != 1 || quantity.Value() != 4 {
		t.Errorf("it asks for %v, and should for 4 of %s", limits, plugin.DefaultResource)
	}
}

// TestClaims: the classes are ours, and each pod has a template and uses its claim.
func TestClaims(t *testing.T) {
	all, classes, templates := decode(t, "kubernetes/dra-pods.yaml"), map[string]bool{}, map[string]bool{}
	for _, class := range plan.Classes() {
		classes[class.Name] = true
	}
	for i := range all.templates {
		template := &all.templates[i]
		templates[template.Name] = true
		for _, class := range classesOf(&template.Spec.Spec) {
			if !classes[class] {
				t.Errorf("%s: there is no class %q", template.Name, class)
			}
		}
	}
	for i := range all.pods {
		pod := &all.pods[i]
		claims := map[string]bool{}
		for _, claim := range pod.Spec.ResourceClaims {
			if claim.ResourceClaimTemplateName == nil || !templates[*claim.ResourceClaimTemplateName] {
				t.Errorf("%s: the claim %s has no template of the file", pod.Name, claim.Name)
			}
			claims[claim.Name] = true
		}
		for _, container := range pod.Spec.Containers {
			if len(container.Resources.Claims) == 0 {
				t.Errorf("%s: its container has no claim", pod.Name)
			}
			for _, claim := range container.Resources.Claims {
				if !claims[claim.Name] {
					t.Errorf("%s: the pod has no claim %s", pod.Name, claim.Name)
				}
			}
		}
	}
	if len(all.pods) == 0 || len(all.templates) == 0 {
		t.Errorf("%d pods and %d templates", len(all.pods), len(all.templates))
	}
}

// classesOf are the classes that the requests of a claim name.
func classesOf(claim *resourceapi.ResourceClaimSpec) (names []string) {
	for _, request := range claim.Devices.Requests {
		if request.Exactly != nil {
			names = append(names, request.Exactly.DeviceClassName)
		}
		for _, sub := range request.FirstAvailable {
			names = append(names, sub.DeviceClassName)
		}
	}
	return names
}
