// Image writes an OCI image (opencontainers/image-spec v1.1, image-layout.md) of lpuctl as a tar archive, without a daemon:
// one layer with the binary and the licence. Equal files give equal bytes.
//
//	go run ./packaging/image -binary bin/lpuctl -arch amd64 -name docker.io/hyperaccel/lpuctl:0.1.0 -o dist/lpuctl-image-amd64.tar
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

func main() {
	binary := flag.String("binary", "bin/lpuctl", "the static binary")
	license := flag.String("license", "LICENSE", "the licence")
	arch := flag.String("arch", "amd64", "architecture of the binary, as Go calls it")
	name := flag.String("name", "docker.io/hyperaccel/lpuctl:0.1.0", "whole name of the image, with registry and tag")
	version := flag.String("version", "devel", "version of lpuctl")
	output := flag.String("o", "", "the archive to write")
	flag.Parse()
	if err := write(*output, *binary, *license, *arch, *name, *version); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println("wrote", *output)
}

func write(output, binary, license, arch, name, version string) error {
	layer, err := newLayer(map[string]string{"usr/bin/lpuctl": binary, "usr/share/doc/lpuctl/LICENSE": license})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(layer); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	layout := layout{newArchive()}
	layerBlob := layout.blob("application/vnd.oci.image.layer.v1.tar+gzip", packed.Bytes())
	config := layout.document("application/vnd.oci.image.config.v1+json", object{
		"architecture": arch, "os": "linux",
		"config": object{
			"Entrypoint": []string{"/usr/bin/lpuctl"}, "Cmd": []string{"serve", "--root", "/host"}, "Env": []string{"PATH=/usr/bin"},
			"Labels": object{
				"org.opencontainers.image.title":    "lpuctl",
				"org.opencontainers.image.version":  version,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	manifest := layout.document("application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []object{layerBlob},
	})
	// The reference of the layout is the tag; containerd and podman want the whole name in annotations of their own.
	manifest["annotations"] = object{
		"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:],
		"io.containerd.image.name":          name,
	}
	manifest["platform"] = object{"architecture": arch, "os": "linux"}
	layout.file("index.json", marshal(object{"schemaVersion": 2, "manifests": []object{manifest}}))
	layout.file("oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	data, err := layout.close()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	return os.WriteFile(output, data, 0o644)
}

func newLayer(files map[string]string) ([]byte, error) {
	a := newArchive()
	for _, to := range []string{"usr/bin/lpuctl", "usr/share/doc/lpuctl/LICENSE"} {
		data, err := os.ReadFile(files[to])
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if path.Dir(to) == "usr/bin" {
			mode = 0o755
		}
		a.add(to, mode, data)
	}
	return a.close()
}

// archive is a tar archive of root's files without times.
type archive struct {
	bytes.Buffer
	tar  *tar.Writer
	made map[string]bool // directories
	err  error           // the first that went wrong
}

func newArchive() *archive {
	a := &archive{made: map[string]bool{".": true}}
	a.tar = tar.NewWriter(&a.Buffer)
	return a
}

func (a *archive) add(name string, mode int64, data []byte) {
	a.directory(path.Dir(name))
	a.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data)
}

func (a *archive) directory(name string) {
	if !a.made[name] {
		a.made[name] = true
		a.directory(path.Dir(name))
		a.put(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil)
	}
}

func (a *archive) put(h *tar.Header, data []byte) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(h)
	}
	if a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

// close ends the archive and returns its bytes.
func (a *archive) close() ([]byte, error) {
	if a.err == nil {
		a.err = a.tar.Close()
	}
	return a.Bytes(), a.err
}

type object map[string]any

// layout is an image layout in the making.
type layout struct{ *archive }

func (l layout) file(name string, data []byte) { l.add(name, 0o644, data) }

// blob stores data under its digest and returns its descriptor.
func (l layout) blob(mediaType string, data []byte) object {
	sum := digest(data)
	l.file("blobs/sha256/"+sum[len("sha256:"):], data)
	return object{"mediaType": mediaType, "digest": sum, "size": len(data)}
}

func (l layout) document(mediaType string, o object) object { return l.blob(mediaType, marshal(o)) }

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// marshal cannot fail: there are only strings, numbers and lists of them.
func marshal(o object) []byte {
	data, _ := json.Marshal(o)
	return data
}
