package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Cordon says that no new pod and no new lease gets an LPU, though it may be healthy. Who
// has the LPU keeps it.
type Cordon struct {
	Reason string    `json:"reason"`       // in the words of who did it
	Since  time.Time `json:"since"`        // RFC 3339
	By     string    `json:"by,omitempty"` // user name and id: "root(0)"
	// SetApart: it is not in a file, but in the configuration, which keeps the LPU for
	// leases (lpuctl run).
	SetApart bool `json:"setApart,omitempty"`
}

// String returns the cordon for people: "since 2026-11-22T10:00:00Z by root(0): the cable
// is replaced".
func (c Cordon) String() string {
	if c.SetApart {
		return "by the config file: " + c.Reason
	}
	return fmt.Sprintf("since %s by %s: %s", c.Since.Format(time.RFC3339), cmp.Or(c.By, "nobody knows"), c.Reason)
}

// Remedy is how a user gets an LPU with this name all the same.
func (c Cordon) Remedy(name string) string {
	if c.SetApart {
		return "lease " + name + " (lpuctl lease), or take it out of leases.pool in the config file"
	}
	return "lpuctl uncordon " + name
}

// Cordons are those of a node. Cards that are not in the machine may be among them.
type Cordons map[pci.Address]Cordon

// CordonDocument is what a file of cordons has, and what commands print.
type CordonDocument struct {
	statefile.Header
	Cordons Cordons `json:"cordons"`
}

const cordonKind = "Cordons"

// Document returns the document of the cordons.
func (c Cordons) Document() CordonDocument { return CordonDocument{statefile.NewHeader(cordonKind), c} }

// cordonFile is the file of cordons at a path. Keys that it does not know do not matter,
// so that the cordons stay in force.
func cordonFile(path string) statefile.File[CordonDocument] {
	return statefile.File[CordonDocument]{
		Path: path, Kind: cordonKind, Check: (*CordonDocument).tidy,
		Limit: 1 << 20, // a cordon has about a hundred bytes
	}
}

// tidy makes equal times equal values, whatever time zone the file has.
func (d *CordonDocument) tidy() error {
	for address, c := range d.Cordons {
		c.SetApart = false
		c.Since = c.Since.UTC()
		d.Cordons[address] = c
	}
	return nil
}

// CordonFile is the file with the cordons of a node, for a program that reads it again
// and again.
type CordonFile struct {
	Path     string  // "": there are no cordons
	SetApart Cordons // besides those of the file

	last  Cordons // that could be read
	known bool    // whether the file could be read once
}

// Read returns the cordons that are in force. If the file cannot be read these are the
// last ones that could be, so that no card is handed out because a file broke; the
// finding says so. A program that never could read it takes no LPU for cordoned.
func (f *CordonFile) Read() (Cordons, finding.List) {
	cordons, findings := f.read()
	if len(f.SetApart) == 0 {
		return cordons, findings
	}
	all := maps.Clone(f.SetApart)
	maps.Copy(all, cordons)
	return all, findings
}

func (f *CordonFile) read() (Cordons, finding.List) {
	d, err := cordonFile(f.Path).Read()
	if err == nil {
		f.last, f.known = cmp.Or(d, &CordonDocument{}).Cordons, true
		return f.last, nil
	}
	e, _ := errors.AsType[*statefile.Error](err)
	message, remedy := "; no LPU is taken for cordoned", ""
	if f.known {
		message = "; the cordons that it had before stay in force until lpuctl is started again"
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		remedy = "let everybody read it: chmod 644 " + f.Path
	case !e.Unusable: // and so lpuctl cordon does not put it aside
		remedy = "put a file there that can be read, or remove it: rm -r " + f.Path + "; then cordon LPUs again (lpuctl cordon)"
	}
	var findings finding.List
	findings.Add(finding.CordonsUnreadable, f.Path, e.Err.Error()+message, remedy)
	return f.last, findings
}

// ChangeCordons changes the cordons in a file under its lock, and returns those that are
// in force then. It writes only if change changes something; an error of change is
// returned, and nothing is written. If the file has no cordons that this lpuctl
// understands, it is kept beside as PATH.bad, change starts with none, and a finding says
// so.
func ChangeCordons(
	ctx context.Context, path string, change func(Cordons) error,
) (after Cordons, findings finding.List, err error) {
	f := cordonFile(path)
	err = f.Change(ctx, func(d *CordonDocument, unread error) (*CordonDocument, error) {
		bad, _ := errors.AsType[*statefile.Error](unread)
		if bad != nil && !bad.Unusable {
			return nil, bad
		}
		d = cmp.Or(d, &CordonDocument{})
		after = Cordons{}
		maps.Copy(after, d.Cordons)
		if err := change(after); err != nil {
			return nil, err
		}
		if bad == nil && maps.Equal(d.Cordons, after) {
			return nil, nil
		}
		if bad != nil {
			findings.Add(finding.CordonsUnreadable, path,
				bad.Err.Error()+"; it was put aside as "+f.Aside()+", and what it cordoned is not any more",
				"see in "+f.Aside()+" which LPUs were cordoned, and cordon them again")
		}
		return &CordonDocument{Cordons: after}, nil
	})
	return after, findings, err
}
