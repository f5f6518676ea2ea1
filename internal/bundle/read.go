package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// packedLimit is how large a file is read. A bundle of this release is below [PackedMax].
const packedLimit = 4 * PackedMax

// InvalidError is why a file is not a bundle, or none that is unpacked.
type InvalidError struct {
	Path string
	Err  error
}

func (e *InvalidError) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// ErrNotBundle is that of a file that is something else.
var ErrNotBundle = errors.New("not a bundle (lpuctl doctor --bundle makes one)")

// Open reads a bundle. Nothing is written. The error is an *[InvalidError], or why the
// file cannot be read.
func Open(name string) (*Bundle, error) {
	data, err := wholefile.Read(name, packedLimit)
	if errors.Is(err, wholefile.ErrTooLarge) {
		return nil, &InvalidError{name, fmt.Errorf("larger than a bundle can be (%d bytes)", packedLimit)}
	}
	if err != nil {
		return nil, err
	}
	b, err := Read(bytes.NewReader(data))
	if err != nil {
		return nil, &InvalidError{name, err}
	}
	return b, nil
}

// Read reads a bundle. What is not as [Bundle.Write] makes it is an error.
func Read(r io.Reader) (*Bundle, error) {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, ErrNotBundle
	}
	unpacked := &limited{r: unzipped, left: TotalMax}
	t := tar.NewReader(unpacked)
	b := &Bundle{Entries: map[string]*Entry{}}
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, cut(err)
		}
		if n > EntriesMax {
			return nil, fmt.Errorf("more than %d entries", EntriesMax)
		}
		if n == 0 {
			if err := b.readIndex(h, t); err != nil {
				return nil, err
			}
			continue
		}
		if err := b.add(h, t); err != nil {
			return nil, err
		}
	}
	if b.Index.Format == 0 {
		return nil, ErrNotBundle
	}
	// What follows the archive is read too: a checksum stands at the end.
	if _, err := io.Copy(io.Discard, unpacked); err != nil {
		return nil, cut(err)
	}
	err = b.check()
	return b, err
}

// cut says of an archive that ends too early what is wrong.
func cut(err error) error {
	switch {
	case errors.Is(err, errTooMuch):
		return errTooMuch
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("it ends too early: part of it is missing")
	}
	return fmt.Errorf("damaged: %w", err)
}

var errTooMuch = fmt.Errorf("more than %d bytes unpacked", TotalMax)

// limited is an error after a number of bytes, where [io.LimitedReader] would end.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooMuch
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

func (b *Bundle) readIndex(h *tar.Header, t io.Reader) error {
	if h.Name != indexName || h.Typeflag != tar.TypeReg {
		return ErrNotBundle
	}
	data, err := content(h, t)
	if err != nil {
		return err
	}
	var of struct {
		statefile.Header
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &of); err != nil || of.Kind != kind || of.Format < 1 {
		return ErrNotBundle
	}
	if of.Format > Format {
		return fmt.Errorf("of format %d, and this lpuctl reads up to %d: take a newer lpuctl", of.Format, Format)
	}
	if err := json.Unmarshal(data, &b.Index); err != nil {
		return fmt.Errorf("%s: %w", indexName, err)
	}
	return nil
}

// content reads an entry.
func content(h *tar.Header, t io.Reader) ([]byte, error) {
	if h.Size > EntryMax {
		return nil, fmt.Errorf("%.80q: larger than an entry can be (%d bytes)", h.Name, EntryMax)
	}
	data, err := io.ReadAll(t)
	if err != nil {
		return nil, cut(err)
	}
	return data, nil
}

// add takes an entry in.
func (b *Bundle) add(h *tar.Header, t io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if err := checkName(name); err != nil {
		return err
	}
	if b.Entries[name] != nil {
		return fmt.Errorf("%.80q: there twice", name)
	}
	e := &Entry{}
	switch h.Typeflag {
	case tar.TypeDir:
		e.Dir = true
	case tar.TypeSymlink:
		if e.Link = h.Linkname; e.Link == "" || len(e.Link) > nameMax || !below(name, rootDir) {
			return fmt.Errorf("%.80q: a link to %.80q", name, h.Linkname)
		}
	case tar.TypeReg:
		var err error
		if e.Data, err = content(h, t); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%.80q: neither a file, a directory nor a symbolic link", name)
	}
	b.Entries[name] = e
	return nil
}

// checkName returns why an entry cannot have a name.
func checkName(name string) error {
	top, _, _ := strings.Cut(name, "/")
	switch {
	case name == "" || len(name) > nameMax || strings.ContainsRune(name, 0) || strings.Count(name, "/") > depthMax:
		return fmt.Errorf("%.80q: not the name of an entry", name)
	case path.IsAbs(name):
		return fmt.Errorf("%.80q: an absolute name", name)
	case path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
		return fmt.Errorf("%.80q: a name that leads elsewhere", name)
	case top != rootDir && top != answersDir && top != journalDir:
		return fmt.Errorf("%.80q: of a part that this lpuctl does not know", name)
	}
	return nil
}

// check checks what only all entries together show.
func (b *Bundle) check() error {
	for name, e := range b.Entries {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if above := b.Entries[dir]; above != nil && !above.Dir {
				return fmt.Errorf("%.80q: below %.80q, which is no directory", name, dir)
			}
		}
		if e.Link != "" {
			if err := b.checkLink(name, e.Link); err != nil {
				return fmt.Errorf("%.80q: a link to %.80q, %w", name, e.Link, err)
			}
		}
	}
	for p := range b.Index.Files {
		if !path.IsAbs(p) || path.Clean(p) != p {
			return fmt.Errorf("%s: %.80q is not a path of the root", indexName, p)
		}
	}
	return nil
}

var (
	errLeadsOut = errors.New("which is out of the root")
	errLoop     = errors.New("which leads on and on")
)

// checkLink returns why a link is not made: it leads out of the root, also by way of other
// links.
func (b *Bundle) checkLink(name, target string) error {
	at := strings.Split(path.Dir(name), "/")
	left := strings.Split(target, "/")
	if path.IsAbs(target) {
		return errLeadsOut
	}
	for links := 0; len(left) > 0; {
		element := left[0]
		left = left[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			if len(at) <= 1 { // root/
				return errLeadsOut
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(slices.Clip(at), element)
		e := b.Entries[strings.Join(at, "/")]
		if e == nil || e.Link == "" {
			continue
		}
		if links++; links > depthMax {
			return errLoop
		}
		if path.IsAbs(e.Link) {
			return errLeadsOut
		}
		at = at[:len(at)-1]
		left = append(strings.Split(e.Link, "/"), left...)
	}
	return nil
}
