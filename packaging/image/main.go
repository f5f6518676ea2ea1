// Image writes an OCI image (opencontainers/image-spec v1.1, image-layout.md) of a program as a tar archive, without a daemon: an index,
// and below it for each architecture one layer with the program, its licences and its bill of materials. Equal files give equal bytes;
// the only time in it is SOURCE_DATE_EPOCH.
//
//	go run ./packaging/image -name docker.io/hyperaccel/lpuctl:0.1.0 -version VERSION -o dist/lpuctl-image.tar dist/amd64 dist/arm64
//
// Each directory has the name of the architecture, as Go calls it, and the files third-party-licenses.txt, sbom.cdx.json and the program,
// which is lpuctl or, with -program, lpuctl-dra.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// The media types of an OCI image.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// maxLayer is what a node downloads at most, in bytes. A larger image is an error.
const maxLayer = 20 << 20

func main() {
	i := image{license: "LICENSE"}
	flag.StringVar(&i.program, "program", "lpuctl", "name of the program")
	flag.StringVar(&i.name, "name", "docker.io/hyperaccel/lpuctl:devel", "whole name of the image, with registry and tag")
	flag.StringVar(&i.version, "version", "devel", "version of lpuctl")
	flag.StringVar(&i.revision, "revision", "", "commit of the source, if it is known")
	output := flag.String("o", "", "the archive to write")
	digestFile := flag.String("digest", "", "a file to write the digest of the index to, by which the image is signed and pulled")
	flag.Parse()
	i.directories = flag.Args()
	if err := i.writeTo(*output, *digestFile, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println("wrote", *output)
}

// image says what to make an image of.
type image struct {
	program                 string // its name; serve is what the container runs
	name, version, revision string
	license                 string   // the file with lpuctl's own licence
	directories             []string // one of each architecture
	created                 string   // RFC 3339
}

// writeTo writes the archive and, if it is named, the file with the digest. Each is replaced as a whole.
func (i *image) writeTo(output, digestFile, epoch string) error {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH, the time of the source in seconds: %w", err)
	}
	i.created = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	if output == "" || len(i.directories) == 0 {
		return errors.New("usage: image -o FILE [flags] DIRECTORY [DIRECTORY]")
	}
	data, index, err := i.archive()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	if err := wholefile.Replace(output, data); err != nil || digestFile == "" {
		return err
	}
	return wholefile.Replace(digestFile, []byte(index+"\n"))
}

// archive makes the archive, and the digest of the index in it.
func (i *image) archive() (data []byte, index string, err error) {
	layout := layout{newArchive()}
	var manifests []object
	for _, dir := range i.directories {
		manifest, err := i.platform(layout, dir)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", dir, err)
		}
		manifests = append(manifests, manifest)
	}
	all := layout.document(typeIndex, object{
		"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests, "annotations": i.annotations(),
	})
	index, _ = all["digest"].(string)
	// The reference of the layout is the tag; containerd and podman want the whole name in annotations of their own.
	all["annotations"] = object{
		"org.opencontainers.image.ref.name": i.name[strings.LastIndex(i.name, ":")+1:],
		"io.containerd.image.name":          i.name,
	}
	layout.file("index.json", marshal(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []object{all}}))
	layout.file("oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	data, err = layout.close()
	return data, index, err
}

// annotations are those of the index and of each manifest, and the labels of a container.
func (i *image) annotations() object {
	a := object{
		"org.opencontainers.image.title":    i.program,
		"org.opencontainers.image.version":  i.version,
		"org.opencontainers.image.source":   "https://github.com/hyperaccel/lpuctl",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  i.created,
	}
	if i.revision != "" {
		a["org.opencontainers.image.revision"] = i.revision
	}
	return a
}

// platform stores the image of one architecture and returns its descriptor.
func (i *image) platform(layout layout, dir string) (object, error) {
	arch, program := filepath.Base(dir), filepath.Join(dir, i.program)
	inside, documents := path.Join("usr/bin", i.program), path.Join("usr/share/doc", i.program)
	if err := isFor(program, arch); err != nil {
		return nil, err
	}
	layer, err := newLayer([]layerFile{
		{inside, 0o755, program},
		{path.Join(documents, "LICENSE"), 0o644, i.license},
		{path.Join(documents, "sbom.cdx.json"), 0o644, filepath.Join(dir, "sbom.cdx.json")},
		{path.Join(documents, "third-party-licenses.txt"), 0o644, filepath.Join(dir, "third-party-licenses.txt")},
	})
	if err != nil {
		return nil, err
	}
	packed, err := pack(layer)
	if err != nil {
		return nil, err
	}
	if len(packed) > maxLayer {
		return nil, fmt.Errorf("the layer has %d bytes, compressed; at most %d", len(packed), maxLayer)
	}
	blob := layout.blob(typeLayer, packed)
	config := layout.document(typeConfig, object{
		"architecture": arch, "os": "linux", "created": i.created,
		"config": object{
			"Entrypoint": []string{"/" + inside}, "Cmd": []string{"serve", "--root", "/host"}, "Env": []string{"PATH=/usr/bin"},
			"Labels": i.annotations(),
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []object{{"created": i.created, "created_by": "packaging/image of lpuctl"}},
	})
	manifest := layout.document(typeManifest, object{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []object{blob}, "annotations": i.annotations(),
	})
	manifest["platform"] = object{"architecture": arch, "os": "linux"}
	return manifest, nil
}

// isFor refuses a program that is not for an architecture.
func isFor(program, arch string) error {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	want, known := machines[arch]
	if !known {
		return fmt.Errorf("architecture %q: expected amd64 or arm64", arch)
	}
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if f.Machine != want {
		return fmt.Errorf("%s is for %v, want %v", program, f.Machine, want)
	}
	return nil
}

func pack(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(data)
	}
	if err == nil {
		err = z.Close()
	}
	return packed.Bytes(), err
}

// layerFile is a file of the layer: its name there, its mode, and where it is here.
type layerFile struct {
	name string
	mode int64
	from string
}

func newLayer(files []layerFile) ([]byte, error) {
	a := newArchive()
	for _, f := range files {
		data, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		a.add(f.name, f.mode, data)
	}
	return a.close()
}

// archive is a tar archive of root's files without times.
type archive struct {
	bytes.Buffer
	tar  *tar.Writer
	made map[string]bool // directories and files
	err  error           // the first that went wrong
}

func newArchive() *archive {
	a := &archive{made: map[string]bool{".": true}}
	a.tar = tar.NewWriter(&a.Buffer)
	return a
}

func (a *archive) add(name string, mode int64, data []byte) {
	a.directory(path.Dir(name))
	if !a.made[name] { // two architectures may share a blob
		a.made[name] = true
		a.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data)
	}
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
