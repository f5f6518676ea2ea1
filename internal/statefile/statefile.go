// Package statefile reads and writes the files in which lpuctl keeps a JSON document
// each.
package statefile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// APIVersion is the apiVersion of every document that lpuctl prints or reads.
const APIVersion = "lpuctl.hyperaccel.ai/v1alpha1"

// Header is how every document begins.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// NewHeader returns the header of a document of a kind.
func NewHeader(kind string) Header { return Header{APIVersion, kind} }

func (h *Header) header() *Header { return h }

// headerOf returns the header that a document embeds.
func headerOf(document any) *Header { return document.(interface{ header() *Header }).header() }

// File is a file with a document, a struct T that embeds a [Header].
type File[T any] struct {
	Path    string // "": there is no file, and none is written
	Kind    string // of the document
	Limit   int64  // bytes; a larger file is unusable
	Trusted bool   // a file that others can have written is unusable: [wholefile.ReadTrusted]
	Indent  string // of the text that is written; "": two spaces
	// Decode reads a document; nil: [json.Unmarshal], for which keys that it does not
	// know do not matter.
	Decode func(data []byte, document any) error
	// Check returns why a document with the right header is unusable. It may be nil.
	Check func(*T) error
}

// Error is the reason why there is no document to be had from a file.
type Error struct {
	Path     string
	Err      error // does not name the file
	Unusable bool  // the content is wrong, or is not trusted; else the file cannot be read now
}

func (e *Error) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// HeaderError is the reason that a document is of another version or kind.
type HeaderError struct{ Have, Want Header }

func (e *HeaderError) Error() string {
	return fmt.Sprintf("apiVersion %.40q, kind %.40q; expected %s, %s", e.Have.APIVersion, e.Have.Kind, e.Want.APIVersion, e.Want.Kind)
}

// Read returns the document, nil if there is no file. The error is an *[Error].
func (f File[T]) Read() (*T, error) {
	if f.Path == "" {
		return nil, nil
	}
	read := wholefile.Read
	if f.Trusted {
		read = wholefile.ReadTrusted
	}
	data, err := read(f.Path, f.Limit)
	_, untrusted := errors.AsType[*wholefile.UntrustedError](err)
	unusable := untrusted || errors.Is(err, wholefile.ErrTooLarge)
	var d *T
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil:
		d, err = f.Parse(data)
		unusable = true
	}
	if err == nil {
		return d, nil
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return nil, &Error{f.Path, err, unusable}
}

// Parse reads the text of a document.
func (f File[T]) Parse(data []byte) (*T, error) {
	decode := f.Decode
	if decode == nil {
		decode = json.Unmarshal
	}
	d := new(T)
	if err := decode(data, d); err != nil {
		return nil, err
	}
	if have, want := *headerOf(d), NewHeader(f.Kind); have != want {
		return nil, &HeaderError{have, want}
	}
	if f.Check != nil {
		if err := f.Check(d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Marshal returns the text of a document, and sets its header.
func (f File[T]) Marshal(d *T) ([]byte, error) {
	*headerOf(d) = NewHeader(f.Kind)
	data, err := json.MarshalIndent(d, "", cmp.Or(f.Indent, "  "))
	return append(data, '\n'), err
}

// Write replaces the file as [wholefile.Replace] does, and makes its directory.
func (f File[T]) Write(d *T) error {
	data, err := f.Marshal(d)
	if err != nil || f.Path == "" {
		return err
	}
	if err := wholefile.MakeDir(filepath.Dir(f.Path)); err != nil {
		return err
	}
	return wholefile.Replace(f.Path, data)
}

// Change reads the file and writes what change makes of it, under the lock of the file.
// unread is the error of [File.Read]. If change returns no document, or an error, the
// file stays; else one that could not be read gets a second name first, [File.Aside].
func (f File[T]) Change(ctx context.Context, change func(before *T, unread error) (after *T, err error)) error {
	lock, err := filelock.Hold(ctx, f.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	before, unread := f.Read()
	after, err := change(before, unread)
	if err != nil || after == nil {
		return err
	}
	if unread != nil {
		if err := f.linkAside(); err != nil {
			return err
		}
	}
	wholefile.ClearLeftovers(f.Path)
	return f.Write(after)
}

// Aside is the path of a file that was put aside.
func (f File[T]) Aside() string { return f.Path + ".bad" }

// PutAside renames the file, and adds to an error what has become of it.
func (f File[T]) PutAside(err error) error {
	if failed := os.Rename(f.Path, f.Aside()); failed != nil {
		return fmt.Errorf("%w; it cannot be put aside: %w", err, failed)
	}
	return fmt.Errorf("%w; it is put aside as %s", err, f.Aside())
}

// linkAside gives the file a second name. It keeps the first until it is replaced,
// because programs take an absent file for one that says nothing.
func (f File[T]) linkAside() error {
	if err := wholefile.Refuse(f.Path); err != nil {
		return err
	}
	if err := os.Remove(f.Aside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(f.Path, f.Aside())
}
