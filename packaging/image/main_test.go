package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// source is a directory with what an image is made of, the program of which has so many bytes.
func source(t *testing.T, arch string, size int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), arch)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// As much of an ELF file (elf(5)) as tells which machine it is for.
	header := make([]byte, 64, 64+size)
	copy(header, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(header[16:], 2)
	binary.LittleEndian.PutUint16(header[18:], map[string]uint16{"amd64": 62, "arm64": 183}[arch])
	binary.LittleEndian.PutUint32(header[20:], 1)
	binary.LittleEndian.PutUint16(header[52:], 64)
	noise := make([]byte, size)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"lpuctl": append(header, noise...), "sbom.cdx.json": []byte(`{"bomFormat": "CycloneDX"}`),
		"third-party-licenses.txt": []byte("of " + arch),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func imageOf(dirs ...string) *image {
	return &image{
		program: "lpuctl",
		name:    "docker.io/hyperaccel/lpuctl:0.1.0", version: "v1", revision: "abc", license: "../../LICENSE", directories: dirs,
	}
}

// descriptor is as much of a descriptor, an index, a manifest and a configuration as the test reads.
type descriptor struct {
	MediaType, Digest, Architecture, Created string
	Size                                     int
	Annotations                              map[string]string
	Platform                                 struct{ Architecture, OS string }
	Manifests, Layers                        []descriptor
	ConfigOf                                 json.RawMessage `json:"config"`
	RootFS                                   struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

func parse[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// files reads an archive. Whatever its source was, its files are root's and without a time.
func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 || !h.ModTime.Equal(time.Unix(0, 0)) || strings.HasPrefix(h.Name, "/") {
			t.Errorf("%+v", h)
		}
		if all[h.Name] != nil {
			t.Errorf("%s is there twice", h.Name)
		}
		if h.Typeflag == tar.TypeReg {
			if all[h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestImage(t *testing.T) {
	dirs := []string{source(t, "amd64", 1000), source(t, "arm64", 2000)}
	dir := t.TempDir()
	output, digestFile := filepath.Join(dir, "new", "image.tar"), filepath.Join(dir, "digest")
	if err := imageOf(dirs...).writeTo(output, digestFile, "1700000000"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	layout := files(t, data)
	// read finds what a descriptor names, and holds that it is that.
	read := func(d descriptor) []byte {
		t.Helper()
		data := layout["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(data) != d.Size || d.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(data)) {
			t.Errorf("%+v: there are %d bytes of another digest", d, len(data))
		}
		return data
	}
	top := parse[descriptor](t, layout["index.json"])
	if len(top.Manifests) != 1 || top.Manifests[0].MediaType != typeIndex {
		t.Fatalf("runtimes want one image in the layout: %s", layout["index.json"])
	}
	index := top.Manifests[0]
	names := map[string]string{"org.opencontainers.image.ref.name": "0.1.0", "io.containerd.image.name": "docker.io/hyperaccel/lpuctl:0.1.0"}
	if diff := cmp.Diff(names, index.Annotations); diff != "" {
		t.Error(diff)
	}
	if said, err := os.ReadFile(digestFile); err != nil || string(said) != index.Digest+"\n" {
		t.Errorf("the digest in the file is %q %v, want %s", said, err, index.Digest)
	}
	labels := map[string]string{
		"org.opencontainers.image.title": "lpuctl", "org.opencontainers.image.version": "v1", "org.opencontainers.image.revision": "abc",
		"org.opencontainers.image.source": "https://github.com/hyperaccel/lpuctl", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created": "2023-11-14T22:13:20Z",
	}
	platforms := parse[descriptor](t, read(index))
	if diff := cmp.Diff(labels, platforms.Annotations); diff != "" || len(platforms.Manifests) != 2 {
		t.Errorf("%d manifests %s", len(platforms.Manifests), diff)
	}
	for i, of := range platforms.Manifests {
		arch := filepath.Base(dirs[i])
		manifest := parse[descriptor](t, read(of))
		config := read(parse[descriptor](t, manifest.ConfigOf))
		settings := parse[descriptor](t, config)
		inside := parse[struct{ Labels map[string]string }](t, settings.ConfigOf)
		if diff := cmp.Diff(labels, manifest.Annotations) + cmp.Diff(labels, inside.Labels); diff != "" {
			t.Error(diff)
		}
		if of.Platform.Architecture != arch || settings.Architecture != arch || settings.Created != labels["org.opencontainers.image.created"] {
			t.Errorf("%+v %s", of, config)
		}
		checkLayer(t, read(manifest.Layers[0]), settings.RootFS.DiffIDs[0], dirs[i])
	}
}

// checkLayer holds a layer against the directory that it was made of.
func checkLayer(t *testing.T, packed []byte, diffID, dir string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil || !z.ModTime.IsZero() || digest(data) != diffID {
		t.Errorf("the layer of %v is %s, want %s: %v", z.ModTime, digest(data), diffID, err)
	}
	want := map[string][]byte{}
	for to, from := range map[string]string{
		"usr/bin/lpuctl": "lpuctl", "usr/share/doc/lpuctl/sbom.cdx.json": "sbom.cdx.json",
		"usr/share/doc/lpuctl/third-party-licenses.txt": "third-party-licenses.txt", "usr/share/doc/lpuctl/LICENSE": "",
	} {
		from := filepath.Join(dir, from)
		if strings.HasSuffix(to, "/LICENSE") {
			from = "../../LICENSE"
		}
		if want[to], err = os.ReadFile(from); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, files(t, data)); diff != "" {
		t.Error(diff)
	}
}

// TestSameBytes: the same source makes the same image, whenever and wherever; another one makes another.
func TestSameBytes(t *testing.T) {
	dirs := []string{source(t, "amd64", 1000), source(t, "arm64", 1000)}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for _, dir := range dirs {
		if err := os.CopyFS(filepath.Join(elsewhere, filepath.Base(dir)), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	make := func(epoch string, dirs ...string) string {
		t.Helper()
		output := filepath.Join(t.TempDir(), "image.tar")
		if err := imageOf(dirs...).writeTo(output, "", epoch); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		return digest(data)
	}
	first := make("1", dirs...)
	if again := make("1", filepath.Join(elsewhere, "amd64"), filepath.Join(elsewhere, "arm64")); again != first {
		t.Errorf("it is %s and then %s", first, again)
	}
	if later := make("2", dirs...); later == first {
		t.Error("the date of the source is not in the image")
	}
	if one := make("1", dirs[0]); one == first {
		t.Error("an image of one architecture is as that of two")
	}
}

func TestRefusedImages(t *testing.T) {
	amd64 := source(t, "amd64", 100)
	swapped := filepath.Join(t.TempDir(), "arm64")
	if err := os.CopyFS(swapped, os.DirFS(amd64)); err != nil {
		t.Fatal(err)
	}
	incomplete := source(t, "arm64", 100)
	if err := os.Remove(filepath.Join(incomplete, "sbom.cdx.json")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		epoch, want string
		dirs        []string
	}{
		{"", "SOURCE_DATE_EPOCH", []string{amd64}},
		{"yesterday", "SOURCE_DATE_EPOCH", []string{amd64}},
		{"1", "usage", nil},
		{"1", "is for EM_X86_64, want EM_AARCH64", []string{amd64, swapped}},
		{"1", "sbom.cdx.json", []string{incomplete}},
		{"1", "expected amd64 or arm64", []string{t.TempDir()}},
		{"1", "compressed; at most", []string{source(t, "amd64", maxLayer)}}, // noise does not compress
	} {
		output := filepath.Join(t.TempDir(), "image.tar")
		err := imageOf(c.dirs...).writeTo(output, "", c.epoch)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v of %v: %v, want %q", c.dirs, c.epoch, err, c.want)
		}
		if _, err := os.Stat(output); err == nil {
			t.Errorf("%q: there is an image", c.want)
		}
	}
}

// TestDriver: the image of the driver has the driver, and runs it.
func TestDriver(t *testing.T) {
	dir := source(t, "amd64", 100)
	if err := os.Rename(filepath.Join(dir, "lpuctl"), filepath.Join(dir, "lpuctl-dra")); err != nil {
		t.Fatal(err)
	}
	i := imageOf(dir)
	i.program = "lpuctl-dra"
	data, _, err := i.archive()
	if err != nil {
		t.Fatal(err)
	}
	settings := []byte(`"Entrypoint":["/usr/bin/lpuctl-dra"]`)
	var found []string
	for _, blob := range files(t, data) {
		if bytes.Contains(blob, settings) {
			found = append(found, "settings")
		}
		if z, err := gzip.NewReader(bytes.NewReader(blob)); err == nil {
			layer, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			found = slices.AppendSeq(found, maps.Keys(files(t, layer)))
		}
	}
	slices.Sort(found)
	want := []string{
		"settings", "usr/bin/lpuctl-dra", "usr/share/doc/lpuctl-dra/LICENSE", "usr/share/doc/lpuctl-dra/sbom.cdx.json",
		"usr/share/doc/lpuctl-dra/third-party-licenses.txt",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}
