package containerd

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// image is busybox, by the name that is asked for.
const image = "localhost/lpuctl-e2e:1"

// layer is a root file system as a tar archive.
func layer(t *testing.T) []byte {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, func(w *tar.Writer) {
		addFile(t, w, "bin/busybox", program)
		for _, applet := range []string{"sh", "cat", "env", "sleep", "sort", "stat", "touch"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// writeImage writes an OCI archive of one layer, under several names.
func writeImage(t *testing.T, path string, names ...string) {
	t.Helper()
	layer := layer(t)
	data := archive(t, func(w *tar.Writer) {
		blob := func(kind string, data []byte) map[string]any {
			digest := fmt.Sprintf("%x", sha256.Sum256(data))
			addFile(t, w, "blobs/sha256/"+digest, data)
			return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}
		}
		layerBlob := blob("layer.v1.tar", layer)
		config := blob("config.v1+json", toJSON(t, map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Entrypoint": []string{}, "Cmd": []string{"/bin/sleep", "1000000"}, "Env": []string{"PATH=/bin"}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layerBlob["digest"]}},
		}))
		manifest := blob("manifest.v1+json", toJSON(t, map[string]any{"schemaVersion": 2, "config": config, "layers": []any{layerBlob}}))
		var manifests []any
		for _, name := range names {
			manifests = append(manifests, map[string]any{
				"mediaType": manifest["mediaType"], "digest": manifest["digest"], "size": manifest["size"],
				"annotations": map[string]string{"io.containerd.image.name": name},
			})
		}
		addFile(t, w, "index.json", toJSON(t, map[string]any{"schemaVersion": 2, "manifests": manifests}))
		addFile(t, w, "oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func archive(t *testing.T, fill func(*tar.Writer)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	fill(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func addFile(t *testing.T, w *tar.Writer, name string, data []byte) {
	t.Helper()
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
}
