package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const (
	recordVersion = 1
	recordLimit   = 1 << 20 // bytes; one of eight LPUs has about a thousand
)

// The states of a record. The kubelet never learns of a claim that has only been started,
// so no container has its LPUs.
const (
	started   = "started"
	completed = "completed"
)

// Record is what must not be forgotten of a prepared claim. It is the document in the
// claim's file of the checkpoint.
type Record struct {
	statefile.Header
	Version   int             `json:"version"` // 1
	Boot      string          `json:"boot"`    // host.Moment; "": not known
	State     string          `json:"state"`   // "started" or "completed"
	Since     time.Time       `json:"since"`   // when it was prepared
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	UID       string          `json:"uid"`
	Requests  []RecordRequest `json:"requests"`

	rest map[string]json.RawMessage // all fields as they were read: those of a later version are kept
}

// RecordRequest is one request of a prepared claim.
type RecordRequest struct {
	// Name includes the subrequest that was chosen, if there is one.
	Name      string         `json:"name"`
	Variables string         `json:"variables,omitempty"` // List or None; "" is List
	Devices   []RecordDevice `json:"devices"`
}

// RecordDevice is one device of a request.
type RecordDevice struct {
	Name    string        `json:"name"`    // in the ResourceSlice
	Members []pci.Address `json:"members"` // its LPUs, in ring order
}

// String names the claim for people.
func (r *Record) String() string { return r.Namespace + "/" + r.Name + " (" + r.UID + ")" }

// Members are all LPUs of the claim.
func (r *Record) Members() (all []pci.Address) {
	for _, q := range r.Requests {
		for _, d := range q.Devices {
			all = append(all, d.Members...)
		}
	}
	return all
}

// same reports whether two records give the same requests the same LPUs.
func (r *Record) same(other *Record) bool {
	device := func(a, b RecordDevice) bool { return a.Name == b.Name && slices.Equal(a.Members, b.Members) }
	request := func(a, b RecordRequest) bool {
		return a.base() == b.base() && (a.Variables == None) == (b.Variables == None) && slices.EqualFunc(a.Devices, b.Devices, device)
	}
	return r.Namespace == other.Namespace && r.Name == other.Name && r.UID == other.UID &&
		slices.EqualFunc(r.Requests, other.Requests, request)
}

// newerError says that a record was written by a later version.
type newerError struct {
	version int
	record  *Record // what can be understood of it; nil: it is not whole
}

func (e *newerError) Error() string {
	return fmt.Sprintf("it is of version %d, and this program knows %d", e.version, recordVersion)
}

// RecordFile is the file of a claim's record in the directory of the checkpoint. If the
// record is of a later version, the error of reading it has what this program understands
// of it.
func RecordFile(dir, uid string) statefile.File[Record] {
	return statefile.File[Record]{
		Path: filepath.Join(dir, uid+".json"), Kind: "DRAClaim", Limit: recordLimit, Trusted: true, Indent: " ",
		Check: func(r *Record) error { return r.checkFile(uid) },
	}
}

// checkFile is check for what was read from the file of a claim.
func (r *Record) checkFile(uid string) error {
	err := r.check()
	if err == nil && r.UID != uid {
		return fmt.Errorf("it is of the claim with the uid %s", r.UID)
	}
	switch {
	case r.Version <= recordVersion:
		return err
	case err != nil:
		return &newerError{version: r.Version}
	}
	return &newerError{r.Version, r}
}

// check finds what no store writes.
func (r *Record) check() error {
	switch {
	case r.Version < 1:
		return fmt.Errorf("version %d is none", r.Version)
	case r.State != started && r.State != completed:
		return fmt.Errorf("state %.40q is none", r.State)
	case !cdi.ValidUID(r.UID) || r.Namespace == "" || r.Name == "":
		return fmt.Errorf("%.100q is not a claim", r.String())
	case len(r.Requests) == 0:
		return errors.New("it has no request")
	}
	taken, names := map[pci.Address]bool{}, map[string]bool{}
	for _, q := range r.Requests {
		if names[q.base()] {
			return fmt.Errorf("request %.80q is there twice", q.Name)
		}
		names[q.base()] = true
		if err := q.check(taken); err != nil {
			return fmt.Errorf("request %.80q: %w", q.Name, err)
		}
	}
	return nil
}

// check finds what no store writes, such as an LPU that was taken before.
func (q *RecordRequest) check(taken map[pci.Address]bool) error {
	switch {
	case q.base() == "":
		return errors.New("it has no name")
	case q.Variables != "" && q.Variables != List && q.Variables != None:
		return fmt.Errorf("variables %.40q: expected %s or %s", q.Variables, List, None)
	case len(q.Devices) == 0:
		return errors.New("it has no device")
	}
	for _, d := range q.Devices {
		if d.Name == "" || len(d.Members) == 0 {
			return fmt.Errorf("device %.80q has no name, or no LPU", d.Name)
		}
		for _, a := range d.Members {
			if taken[a] {
				return fmt.Errorf("LPU %s is there twice", a)
			}
			taken[a] = true
		}
	}
	return nil
}

// UnmarshalJSON reads the record, and keeps the fields that it does not know.
func (r *Record) UnmarshalJSON(data []byte) error {
	type record Record
	if err := json.Unmarshal(data, (*record)(r)); err != nil {
		return err
	}
	return json.Unmarshal(data, &r.rest)
}

// MarshalJSON writes the record together with the fields that were kept.
func (r *Record) MarshalJSON() ([]byte, error) {
	type record Record
	text, err := json.Marshal((*record)(r))
	if err != nil {
		return nil, err
	}
	all := maps.Clone(r.rest)
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
