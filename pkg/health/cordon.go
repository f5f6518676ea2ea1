package health

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Cordon says that nobody new is given an LPU, though it may be healthy. Who has the LPU keeps it.
type Cordon struct {
	Reason string    `json:"reason"`       // in the words of who did it
	Since  time.Time `json:"since"`        // RFC 3339
	By     string    `json:"by,omitempty"` // user name and id: "root(0)"
	// SetApart: it is not in a file, but in the configuration, which keeps the LPU for leases (lpuctl run).
	SetApart bool `json:"setApart,omitempty"`
}

// String tells the cordon to people: "since 2026-11-22T10:00:00Z by root(0): the cable is replaced".
func (c Cordon) String() string {
	if c.SetApart {
		return "by the config file: " + c.Reason
	}
	return fmt.Sprintf("since %s by %s: %s", c.Since.Format(time.RFC3339), cmp.Or(c.By, "nobody knows"), c.Reason)
}

// Remedy is how somebody gets an LPU with this name all the same.
func (c Cordon) Remedy(name string) string {
	if c.SetApart {
		return "lease " + name + " (lpuctl lease), or take it out of leases.pool in the config file"
	}
	return "lpuctl uncordon " + name
}

// Cordons are those of a node, by PCI address ("0000:45:00.1"). Cards that are not in the machine may be among them.
type Cordons map[string]Cordon

// CordonDocument is what a file of cordons has, and what commands print.
type CordonDocument struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"` // "Cordons"
	Cordons    Cordons `json:"cordons"`
}

const (
	cordonVersion = "lpuctl.hyperaccel.ai/v1alpha1"
	cordonKind    = "Cordons"
	cordonLimit   = 1 << 20 // bytes; a cordon has about a hundred
)

// Document is the document that [ParseCordons] reads.
func (c Cordons) Document() CordonDocument { return CordonDocument{cordonVersion, cordonKind, c} }

// isAddress matches a PCI address in the kernel's form: another form would name a card to people, and none to lpuctl.
var isAddress = lazy.Regexp(`^([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// ParseCordons reads a document. Keys that it does not know do not matter, so that the cordons stay in force.
func ParseCordons(data []byte) (Cordons, error) {
	var d CordonDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	if d.APIVersion != cordonVersion || d.Kind != cordonKind {
		return nil, fmt.Errorf("apiVersion %q, kind %q; expected %s, %s", d.APIVersion, d.Kind, cordonVersion, cordonKind)
	}
	for address, c := range d.Cordons {
		if !isAddress().MatchString(address) {
			return nil, fmt.Errorf("%q is not a PCI address in the form 0000:b1:00.1", address)
		}
		c.SetApart = false
		c.Since = c.Since.UTC() // so that equal times are equal values, whatever time zone somebody wrote
		d.Cordons[address] = c
	}
	return d.Cordons, nil
}

// badFile is the error that a file can be read, and has no cordons that this lpuctl understands.
type badFile struct{ error }

func (e badFile) Unwrap() error { return e.error }

// readCordons reads a file; if there is none, there are no cordons. An error is a badFile, or the file cannot be read.
func readCordons(path string) (Cordons, error) {
	data, err := wholefile.Read(path, cordonLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, wholefile.ErrTooLarge):
		return nil, badFile{err}
	case err != nil:
		return nil, err
	}
	cordons, err := ParseCordons(data)
	if err != nil {
		return nil, badFile{fmt.Errorf("%s: %w", path, err)}
	}
	return cordons, nil
}

// CordonFile is the file with the cordons of a node, for a program that reads it again and again.
type CordonFile struct {
	Path     string  // "": there are no cordons
	SetApart Cordons // besides those of the file

	last  Cordons // that could be read
	known bool    // whether the file could be read once
}

// Read returns the cordons that are in force. If the file cannot be read these are the last ones that could be, so that no card is
// handed out because a file broke; the finding says so. A program that never could read it takes no LPU for cordoned.
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
	if f.Path == "" {
		return nil, nil
	}
	cordons, err := readCordons(f.Path)
	if err == nil {
		f.last, f.known = cordons, true
		return cordons, nil
	}
	message, remedy := "; no LPU is taken for cordoned", ""
	if f.known {
		message = "; the cordons that it had before stay in force until lpuctl is started again"
	}
	if errors.Is(err, fs.ErrPermission) {
		remedy = "let everybody read it: chmod 644 " + f.Path
	}
	var findings finding.List
	findings.Add(finding.CordonsUnreadable, f.Path, err.Error()+message, remedy)
	return f.last, findings
}

// badSuffix is added to the name of a file that was put aside.
const badSuffix = ".bad"

// ChangeCordons changes the cordons in a file under its lock, and returns those that are in force then. It writes only if change
// changes something; an error of change is returned, and nothing is written. If the file has no cordons that this lpuctl understands,
// it is kept beside as PATH.bad, change starts with none, and a finding says so.
func ChangeCordons(ctx context.Context, path string, change func(Cordons) error) (Cordons, finding.List, error) {
	lock, err := filelock.Hold(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close()
	before, err := readCordons(path)
	bad, isBad := errors.AsType[badFile](err)
	if err != nil && !isBad {
		return nil, nil, err
	}
	after := Cordons{}
	maps.Copy(after, before)
	if err := change(after); err != nil {
		return nil, nil, err
	}
	if !isBad && maps.Equal(before, after) {
		return after, nil, nil
	}
	var findings finding.List
	if isBad {
		if err := putAside(path); err != nil {
			return nil, nil, err
		}
		kept := path + badSuffix
		findings.Add(finding.CordonsUnreadable, path, bad.Error()+"; it was put aside as "+kept+", and what it cordoned is not any more",
			"see in "+kept+" which LPUs were cordoned, and cordon them again")
	}
	return after, findings, writeCordons(path, after)
}

// putAside gives a file a second name. It keeps the first until it is replaced, because a program that finds no file there takes all
// LPUs for not cordoned.
func putAside(path string) error {
	if err := wholefile.Refuse(path); err != nil {
		return err
	}
	if err := os.Remove(path + badSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(path, path+badSuffix)
}

func writeCordons(path string, cordons Cordons) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(cordons.Document()); err != nil {
		return err
	}
	wholefile.ClearLeftovers(path)
	return wholefile.Replace(path, text.Bytes())
}
