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
	return archive(t, func(w *tar.Writer) error {
		for _, applet := range []string{"sh", "cat", "env", "sleep", "sort", "stat", "touch"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"}); err != nil {
				return err
			}
		}
		return addFile(w, "bin/busybox", program)
	})
}

// writeImage writes an archive of an image as docker save does (moby, image/spec/spec.md), under several names.
func writeImage(t *testing.T, path string, names ...string) {
	t.Helper()
	tags, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	layer := layer(t)
	data := archive(t, func(w *tar.Writer) error {
		for name, data := range map[string]string{
			"layer.tar": string(layer),
			"config.json": fmt.Sprintf(`{"architecture": %q, "os": "linux", "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
				"rootfs": {"type": "layers", "diff_ids": ["sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256(layer)),
			"manifest.json": fmt.Sprintf(`[{"Config": "config.json", "Layers": ["layer.tar"], "RepoTags": %s}]`, tags),
		} {
			if err := addFile(w, name, []byte(data)); err != nil {
				return err
			}
		}
		return nil
	})
	write(t, path, string(data))
}

func archive(t *testing.T, fill func(*tar.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := fill(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func addFile(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
