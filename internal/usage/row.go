// Package usage keeps how long users of a node have had which LPUs: sums by hour, user
// and LPU, and nothing of what they ran.
package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// LPU is one that was leased.
type LPU struct {
	Address string `json:"address"` // PCI
	Name    string `json:"name"`    // at that time: "lpu3"
}

// Row is a line of the journal: what one user has had of one LPU in one hour of the
// clock. Without an LPU it has what is of no LPU by itself.
//
// An arbiter writes a row again and again while its hour lasts. Of rows that agree in Run,
// Hour, UID and Address the last one counts, so to write one twice does no harm. Those of
// different runs are added up.
type Row struct {
	Hour time.Time `json:"hour"` // its begin, UTC
	UID  int       `json:"uid"`
	User string    `json:"user,omitempty"`
	// Address is "" of a row without an LPU.
	Address string `json:"lpu,omitempty"`
	Name    string `json:"name,omitempty"`

	Leases int   `json:"leases,omitempty"` // that began
	Leased int64 `json:"leased,omitempty"` // ms
	Open   int64 `json:"open,omitempty"`   // ms in which the node was open meanwhile

	Waits   int   `json:"waits,omitempty"`   // in the queue that have ended
	Waited  int64 `json:"waited,omitempty"`  // ms, all waits together
	Longest int64 `json:"longest,omitempty"` // ms

	// Run is the arbiter that counted: the beginning of its boot id, when it began, and a
	// number that grows when its clock is set back. It is "" of rows that were added up.
	Run string `json:"run,omitempty"`
	// Until is up to when a lease of the LPU is in the row, in nanoseconds since that boot
	// (CLOCK_BOOTTIME).
	Until time.Duration `json:"until,omitempty"`
}

// key is what rows of one sum agree in.
type key struct {
	run     string
	hour    int64 // Unix
	uid     int
	address string
}

func (r *Row) key() key { return key{r.Run, r.Hour.Unix(), r.UID, r.Address} }

const (
	kind = "Usage" // of the file
	// In bytes. It bounds the time that one line can take.
	lineLimit = 4 << 10
	maxName   = 64      // bytes
	maxTime   = 1 << 52 // ms of one row: what fits a float64
	maxCount  = 1 << 40
)

// parse reads the text of a file of rows. unread is how many lines are no rows, such as a
// last line that was cut. The error is that the file has another version or kind.
func parse(data []byte, take func(*Row)) (unread int, err error) {
	head, rest, _ := bytes.Cut(data, []byte("\n"))
	var first statefile.Header
	if err := json.Unmarshal(head, &first); err != nil {
		return 0, err
	}
	if want := statefile.NewHeader(kind); first != want {
		return 0, &statefile.HeaderError{Have: first, Want: want}
	}
	for len(rest) > 0 {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		rest = after
		if r, err := parseRow(line); err == nil && whole {
			take(r)
		} else {
			unread++
		}
	}
	return unread, nil
}

// parseRow reads a line. Keys that a newer lpuctl writes do not matter.
func parseRow(line []byte) (*Row, error) {
	if len(line) > lineLimit {
		return nil, errors.New("too long")
	}
	r := &Row{}
	if err := json.Unmarshal(line, r); err != nil {
		return nil, err
	}
	err := r.check()
	return r, err
}

// check finds what no arbiter writes.
func (r *Row) check() error {
	for _, n := range []int{r.UID, r.Leases, r.Waits} {
		if n < 0 || n > maxCount {
			return fmt.Errorf("%d is no number of something", n)
		}
	}
	for _, n := range []int64{r.Leased, r.Open, r.Waited, r.Longest} {
		if n < 0 || n > maxTime {
			return fmt.Errorf("%d is no time", n)
		}
	}
	switch _, isAddress := pci.Find(r.Address); {
	case r.Address != "" && !isAddress:
		return fmt.Errorf("%.40q is no LPU", r.Address)
	case r.User != Name(r.User), r.Name != Name(r.Name), r.Run != Name(r.Run):
		return errors.New("a name that cannot be shown")
	case !r.Hour.Equal(r.Hour.UTC().Truncate(time.Hour)), r.Hour.Year() < 1, r.Hour.Year() > 9999:
		return errors.New("no hour")
	}
	return nil
}

// Name returns a name of at most 64 bytes that can be shown on one line: other characters
// are left out.
func Name(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
	for len(text) > maxName {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// is reports whether a row is of a user, by uid or name.
func (r *Row) is(user string) bool { return user == strconv.Itoa(r.UID) || user == r.User }

// add adds what another row has.
func (r *Row) add(o *Row) {
	r.Leases += o.Leases
	r.Leased += o.Leased
	r.Open += o.Open
	r.Waits += o.Waits
	r.Waited += o.Waited
	r.Longest = max(r.Longest, o.Longest)
	r.User, r.Name = max(r.User, o.User), max(r.Name, o.Name)
}
