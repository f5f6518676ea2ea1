package host

import (
	"path"
	"strings"
	"sync/atomic"
)

// Witness sees what is looked at below a root: paths of the root, absolute. Its functions
// are called from several goroutines; one that is nil is not called.
type Witness struct {
	Root   Root
	Looked func(path string)
	Listed func(dir string)
	Read   func(path string, data []byte, err error)
	Linked func(path, text string) // the text of a link was read
}

//nolint:gochecknoglobals // it sees what all of this process read
var witness atomic.Pointer[Witness]

// Watch lets a witness see what is looked at, until the returned function is called.
func Watch(w *Witness) (end func()) {
	witness.Store(w)
	return func() { witness.CompareAndSwap(w, nil) }
}

// looked says that a path of a root is looked at.
func (r Root) looked(p string) {
	if w := witness.Load(); w != nil && w.Root == r && w.Looked != nil {
		w.Looked(path.Join("/", p))
	}
}

// own returns the witness of the directory's tree, and the path of a file of it; nil if
// there is none.
func (d *Dir) own(name string) (*Witness, string) {
	w := witness.Load()
	if w == nil || w.Root != d.tree.Root {
		return nil, ""
	}
	return w, path.Join("/", strings.TrimPrefix(d.Path, strings.TrimSuffix(string(w.Root), "/")), name)
}

func (d *Dir) looked(name string) {
	if w, p := d.own(name); w != nil && w.Looked != nil {
		w.Looked(p)
	}
}

func (d *Dir) listed() {
	if w, p := d.own(""); w != nil && w.Listed != nil {
		w.Listed(p)
	}
}

func (d *Dir) wasRead(name string, data []byte, err error) {
	if w, p := d.own(name); w != nil && w.Read != nil {
		w.Read(p, data, err)
	}
}

func (d *Dir) linked(name, text string) {
	if w, p := d.own(name); w != nil && w.Linked != nil {
		w.Linked(p, text)
	}
}
