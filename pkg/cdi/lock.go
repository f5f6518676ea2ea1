package cdi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// Held is a spec file under its lock. No other lpuctl changes the file until Release.
// Who writes a spec scans the machine under the lock too: else an older scan could
// replace a newer spec.
type Held struct {
	File
	lock *os.File
}

// Hold waits for the lock of the file as [filelock.Hold] does. The caller calls Release.
func (f File) Hold(ctx context.Context) (*Held, error) {
	lock, err := filelock.Hold(ctx, f.Path)
	if err != nil {
		return nil, err
	}
	return &Held{f, lock}, nil
}

// Release lets others have the lock.
func (h *Held) Release() { h.lock.Close() }

// result is what the lock file says of the last spec that was written under it, so that
// those who waited for it need not scan again.
type result struct {
	host.Moment        // when its scan began
	Request     string `json:"request"` // what was asked for
	// Sum is of the bytes of the spec, in hexadecimal; "" if there is none.
	Sum string `json:"sum"`
	// Outcome is what the caller of Remember wants to know.
	Outcome json.RawMessage `json:"outcome"`
}

// Remember notes that the file holds what a scan found that began at a moment. request
// identifies everything else that the spec depends on.
func (h *Held) Remember(began host.Moment, request string, outcome any) error {
	text, err := json.Marshal(outcome)
	if err == nil {
		text, err = json.Marshal(result{began, request, h.sum(), text})
	}
	if err == nil {
		err = h.lock.Truncate(0)
	}
	if err == nil {
		_, err = h.lock.WriteAt(text, 0)
	}
	return err
}

// Recall finds out whether the file holds the result of the same request with a scan that
// began after a moment. If so, it fills in outcome.
func (h *Held) Recall(after host.Moment, request string, outcome any) bool {
	var r result
	return json.NewDecoder(h.lock).Decode(&r) == nil && r.Request == request && r.After(after) && r.Sum == h.sum() &&
		json.Unmarshal(r.Outcome, outcome) == nil
}

func (h *Held) sum() string {
	data, err := h.Read()
	if err != nil || data == nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// Write puts the spec in place: written beside, synced, renamed, read back. It renames
// even when the bytes are the same as before, because that is what makes runtimes forget
// device numbers they remember. A reader sees the old file or the new one, whenever this
// process dies. While another file in the directory defines devices of the spec, it
// writes what is [File.Writable], and returns the *Conflict.
func (h *Held) Write(spec *specs.Spec) error {
	rest, conflict := h.Writable(spec)
	if _, ok := errors.AsType[*Conflict](conflict); conflict != nil && !ok {
		return conflict
	}
	if rest == nil {
		_, err := h.Remove()
		return cmp.Or(err, conflict)
	}
	if table := missingTable(h.Root, rest); table != "" {
		return fmt.Errorf("%s is not written: its ring table %s is not there", h.Path, table)
	}
	data, err := Marshal(rest)
	if err != nil {
		return err
	}
	wholefile.ClearLeftovers(h.Path)
	if err := wholefile.Replace(h.Path, data); err != nil {
		return err
	}
	return cmp.Or(h.readBack(data), conflict)
}

// Remove takes the file away and reports whether there was one. It touches no other file.
func (h *Held) Remove() (removed bool, err error) {
	if err := wholefile.Refuse(h.Path); err != nil {
		return false, err
	}
	wholefile.ClearLeftovers(h.Path)
	err = os.Remove(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
