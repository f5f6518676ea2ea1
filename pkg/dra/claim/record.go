package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

const (
	recordKind    = "DRAClaim"
	recordVersion = 1
	recordLimit   = 1 << 20 // bytes; one of eight LPUs has about a thousand
)

// The states of a record. The kubelet is never told of a claim that has only been started, so no container has its LPUs.
const (
	started   = "started"
	completed = "completed"
)

// Record is what must not be forgotten of a prepared claim. It is the document in the claim's file of the checkpoint.
type Record struct {
	APIVersion string          `json:"apiVersion"` // discovery.APIVersion
	Kind       string          `json:"kind"`       // "DRAClaim"
	Version    int             `json:"version"`    // 1
	Boot       string          `json:"boot"`       // host.Moment; "": not known
	State      string          `json:"state"`      // "started" or "completed"
	Since      time.Time       `json:"since"`      // when it was prepared
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	UID        string          `json:"uid"`
	Requests   []RecordRequest `json:"requests"`

	rest map[string]json.RawMessage // fields of a later version, which are kept
}

// RecordRequest is one request of a prepared claim.
type RecordRequest struct {
	Name      string         `json:"name"`                // with the subrequest that was chosen, if there is one
	Variables string         `json:"variables,omitempty"` // List or None; "" is List
	Devices   []RecordDevice `json:"devices"`
}

// RecordDevice is one device of a request.
type RecordDevice struct {
	Name    string              `json:"name"`    // in the ResourceSlice
	Members []discovery.Address `json:"members"` // its LPUs, in ring order
}

// String names the claim for people.
func (r *Record) String() string { return r.Namespace + "/" + r.Name + " (" + r.UID + ")" }

// Members are all LPUs of the claim.
func (r *Record) Members() (all []discovery.Address) {
	for _, q := range r.Requests {
		for _, d := range q.Devices {
			all = append(all, d.Members...)
		}
	}
	return all
}

// same tells whether two records give the same requests the same LPUs.
func (r *Record) same(other *Record) bool {
	device := func(a, b RecordDevice) bool { return a.Name == b.Name && slices.Equal(a.Members, b.Members) }
	request := func(a, b RecordRequest) bool {
		return a.base() == b.base() && (a.Variables == None) == (b.Variables == None) && slices.EqualFunc(a.Devices, b.Devices, device)
	}
	return r.Namespace == other.Namespace && r.Name == other.Name && r.UID == other.UID &&
		slices.EqualFunc(r.Requests, other.Requests, request)
}

// newerError says that a record was written by a later version.
type newerError struct{ version int }

func (e *newerError) Error() string {
	return fmt.Sprintf("it is of version %d, and this program knows %d", e.version, recordVersion)
}

// ParseRecord reads a file of the checkpoint. Fields that it does not know are kept for when the record is written again. With the error
// that the record is of a later version, it returns what it understands of it, if that is whole; with any other error, nil.
func ParseRecord(data []byte) (*Record, error) {
	r := &Record{}
	if len(data) > recordLimit {
		return nil, fmt.Errorf("it has %d bytes, and a record has at most %d", len(data), recordLimit)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.APIVersion != discovery.APIVersion || r.Kind != recordKind {
		return nil, fmt.Errorf("apiVersion %.40q, kind %.40q; expected %s, %s", r.APIVersion, r.Kind, discovery.APIVersion, recordKind)
	}
	if err := json.Unmarshal(data, &r.rest); err != nil {
		return nil, err
	}
	for _, name := range []string{
		"apiVersion", "kind", "version", "boot", "state", "since", "namespace", "name", "uid", "requests",
	} {
		delete(r.rest, name)
	}
	err := r.check()
	switch {
	case r.Version > recordVersion && err != nil:
		return nil, &newerError{r.Version}
	case r.Version > recordVersion:
		return r, &newerError{r.Version}
	case err != nil:
		return nil, err
	}
	return r, nil
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
	taken, names := map[discovery.Address]bool{}, map[string]bool{}
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
func (q *RecordRequest) check(taken map[discovery.Address]bool) error {
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

// marshal is the record as it stands in its file.
func (r *Record) marshal() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	ours := maps.Clone(all)
	maps.Copy(all, r.rest)
	maps.Copy(all, ours)
	data, err := json.MarshalIndent(all, "", " ")
	return append(bytes.TrimSpace(data), '\n'), err
}
