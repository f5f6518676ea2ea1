package plant

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Capture writes a capture of a real kernel's sysfs, which is a file of testdata two directories up, into a fresh directory.
func Capture(t testing.TB, name string) string {
	t.Helper()
	file, err := os.Open(filepath.Join("../../testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, header.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		switch header.Typeflag {
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, to)
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, data, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
