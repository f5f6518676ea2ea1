package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// Pack returns the bytes of a bundle, at most [PackedMax]. What it leaves out to be so
// small is in the index: first what units have written, then what other runtimes are set
// to.
func (b *Bundle) Pack() ([]byte, error) {
	for _, part := range []string{"", journalDir, rootDir + "/etc"} {
		if part != "" && !b.drop(part) {
			continue
		}
		var packed bytes.Buffer
		if err := b.write(&packed); err != nil {
			return nil, err
		}
		if packed.Len() <= PackedMax {
			return packed.Bytes(), nil
		}
	}
	return nil, fmt.Errorf("the bundle is larger than %d bytes", PackedMax)
}

// drop leaves out all of a part, and reports whether there was any.
func (b *Bundle) drop(part string) bool {
	n := 0
	for name, e := range b.Entries {
		if below(name, part) && !e.Dir {
			delete(b.Entries, name)
			n++
		}
	}
	if n > 0 {
		b.Index.LeftOut = append(b.Index.LeftOut, Note{"files of " + strings.TrimPrefix(part, rootDir), "the bundle would be too large", n})
	}
	return n > 0
}

// write writes the archive. The same bundle is always the same bytes.
func (b *Bundle) write(w io.Writer) error {
	zipped := gzip.NewWriter(w)
	t := tar.NewWriter(zipped)
	b.Index.Header = statefile.NewHeader(kind)
	index, err := json.Marshal(b.Index)
	if err != nil {
		return err
	}
	if err := writeEntry(t, indexName, &Entry{Data: index}); err != nil {
		return err
	}
	for _, name := range b.Names() {
		if err := writeEntry(t, name, b.Entries[name]); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

func writeEntry(t *tar.Writer, name string, e *Entry) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(e.Data))}
	switch {
	case e.Dir:
		h.Name, h.Typeflag, h.Mode = name+"/", tar.TypeDir, 0o755
	case e.Link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(e.Data)
	return err
}

// status is what the index says of a file.
func status(info fs.FileInfo) Status {
	s := Status{Modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Mode, s.UID, s.GID = st.Mode, st.Uid, st.Gid
		s.Major, s.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
		s.Changed = st.Ctim.Nano()
	}
	return s
}
