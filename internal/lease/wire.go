package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Socket is where the arbiter listens, under the root. It belongs to root and the group
// lpu.
const Socket = "/run/lpuctl/lease.sock"

// The protocol: a Unix socket of type SOCK_SEQPACKET. Each message is one JSON document,
// a [Request] or an [Answer]. A client sends one request and waits for the answer before
// it sends the next.
const (
	maxRequest = 8 << 10 // bytes; a wish that names a hundred LPUs has two thousand
	// In bytes. The kernel sends no message of more than net.core.wmem_max, 208 KiB.
	maxAnswer = 128 << 10
)

// Limits of what a request can hold.
const (
	maxCount   = 1024                 // LPUs
	maxTime    = 365 * 24 * time.Hour // of a lease or a reservation
	maxReason  = 200                  // bytes of a reason
	maxCommand = 64                   // bytes of the name of a program
)

// Selection says which LPUs a client wants.
type Selection struct {
	Count     int            `json:"count"`          // from 1
	Must      []pci.Address  `json:"must,omitempty"` // LPUs that have to be among them
	Connected bool           `json:"connected,omitempty"`
	Place     allocate.Place `json:"place,omitzero"`
}

// Wish asks for a lease.
type Wish struct {
	Selection
	// For is how long at most, in nanoseconds; 0: as long as the limit of the user allows.
	For time.Duration `json:"for,omitempty"`
	// Wait: wait until there are such LPUs, in a queue; else refuse at once.
	Wait bool `json:"wait,omitempty"`
	// DryRun: answer what would be leased now, and lease nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Command is what the LPUs are for, in the words of who asks: the name of the
	// program. It is shown to others in place of that of the process that asks, which is
	// always lpuctl. At most 64 bytes.
	Command string `json:"command,omitempty"`
}

// Reserve asks for a reservation: LPUs that only one user can lease for some time.
type Reserve struct {
	Selection
	For    time.Duration `json:"for"`    // in nanoseconds
	Reason string        `json:"reason"` // for others to read: one line of at most 200 bytes
}

// Request is what a client asks of the arbiter. Exactly one of the pointers is set.
type Request struct {
	APIVersion string    `json:"apiVersion"` // statefile.APIVersion
	Wish       *Wish     `json:"wish,omitempty"`
	Bind       *Bind     `json:"bind,omitempty"`
	Reserve    *Reserve  `json:"reserve,omitempty"`
	Release    *Release  `json:"release,omitempty"`
	Extend     *Extend   `json:"extend,omitempty"`
	List       *struct{} `json:"list,omitempty"`
	// ReleaseAll gives back all reservations of the user.
	ReleaseAll *struct{}  `json:"releaseAll,omitempty"`
	End        *End       `json:"end,omitempty"`
	Queue      *QueueFrom `json:"queue,omitempty"`
	// Usage asks for a report of who has used what. Who is not root gets that of himself.
	Usage *usage.Query `json:"usage,omitempty"`
	Retry *Retry       `json:"retry,omitempty"`
}

// Bind makes the lease of this connection last until a container has ended, even if the
// connection is closed before.
type Bind struct {
	Container string `json:"container"` // its id: 64 hexadecimal digits
}

// Retry has the hook run again on an LPU on which it has failed.
type Retry struct {
	Address pci.Address `json:"address"`
}

// Release gives a reservation back.
type Release struct {
	ID string `json:"id"`
}

// Extend makes a reservation longer.
type Extend struct {
	ID  string        `json:"id"`
	For time.Duration `json:"for"` // what is added to its end, in nanoseconds
}

// Answer is what the arbiter says. Exactly one of the pointers is set.
type Answer struct {
	APIVersion string       `json:"apiVersion"` // statefile.APIVersion
	Granted    *Grant       `json:"granted,omitempty"`
	Waiting    *Place       `json:"waiting,omitempty"` // another answer follows
	Refused    *Refusal     `json:"refused,omitempty"`
	Reserved   *Reservation `json:"reserved,omitempty"`
	List       *List        `json:"list,omitempty"`
	Done       *struct{}    `json:"done,omitempty"`
	// Over: the time of the lease is over; it lasts until the connection is closed.
	Over     *Over         `json:"over,omitempty"`
	Released *Released     `json:"released,omitempty"` // to ReleaseAll
	Ended    *Lease        `json:"ended,omitempty"`    // to End; of a wish that waited it has no LPUs
	Queue    *Queue        `json:"queue,omitempty"`
	Usage    *usage.Report `json:"usage,omitempty"`

	text []byte // as it is sent; nil: it is made then
}

// LPU is one that is leased or reserved.
type LPU struct {
	Address pci.Address `json:"address"`
	Name    string      `json:"name"` // at the time when it was chosen: "lpu3"
}

// Grant is the answer to a wish that was fulfilled.
type Grant struct {
	ID   string `json:"id,omitempty"` // of the lease; absent of a dry run
	LPUs []LPU  `json:"lpus"`         // in ring order
	// Connected says that the LPUs follow each other on a ring. It is nil if no ring
	// table says which LPUs are neighbours.
	Connected *bool `json:"connected,omitempty"`
	// Until is when the time of the lease is over, since boot (CLOCK_BOOTTIME, in
	// nanoseconds); 0: never.
	Until time.Duration `json:"until,omitempty"`
	// UsersHidden: the arbiter cannot see all processes, so a process without a lease may
	// use an LPU.
	UsersHidden bool   `json:"usersHidden,omitempty"`
	Reason      string `json:"reason"` // why these LPUs
}

// Place says where in the queue a wish waits, and for what.
type Place struct {
	Place int    `json:"place"` // 1 is the first
	Of    int    `json:"of"`    // wishes in the queue
	Why   string `json:"why"`   // who has the LPUs, and until when
}

// Refusal is the error that the arbiter does not do what it was asked, or cannot be
// reached.
type Refusal struct {
	ID      finding.ID `json:"id"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy"`
}

func (r *Refusal) Error() string { return r.Message }

// Peer is who is at the other end of a connection, as the kernel says.
type Peer struct {
	UID  int    `json:"uid"`
	User string `json:"user,omitempty"` // the name of that user
	// Via is the uid of the process where that is a subordinate one of the user
	// (subuid(5)); 0: it is the user's own.
	Via     int    `json:"via,omitempty"`
	PID     int    `json:"pid"` // of the process that connected
	Command string `json:"command,omitempty"`
}

// String names a user to people: "bob(1000)", or "bob (container)".
func (p Peer) String() string {
	return (&discovery.Holder{UID: p.UID, User: p.User, Via: p.Via}).String()
}

// Lease says who has LPUs. Times are since boot (CLOCK_BOOTTIME), in nanoseconds.
type Lease struct {
	ID string `json:"id"` // "l7"
	Peer
	LPUs  []LPU         `json:"lpus"` // in ring order
	Since time.Duration `json:"since"`
	Until time.Duration `json:"until,omitempty"` // when its time is over; 0: never
	// Container is the container whose end is the end of the lease.
	Container string `json:"container,omitempty"`
}

// Reservation says for whom LPUs are kept. Times are since boot (CLOCK_BOOTTIME), in
// nanoseconds.
type Reservation struct {
	ID     string        `json:"id"` // "r3"
	Peer                 // who made it
	LPUs   []LPU         `json:"lpus"`
	Reason string        `json:"reason"`
	Since  time.Duration `json:"since"`
	Until  time.Duration `json:"until"`
}

// Waiter is a wish in the queue.
type Waiter struct {
	Peer
	Count int           `json:"count"`
	Since time.Duration `json:"since"`
}

// Unleased is an LPU that is in use without a lease.
type Unleased struct {
	LPU
	Users []discovery.User `json:"users"`
}

// List is all that the arbiter knows. Leases are in the order in which they were asked
// for, reservations in that of their ids, waiters in that of the queue.
type List struct {
	Leases       []Lease       `json:"leases"`
	Reservations []Reservation `json:"reservations"`
	Waiting      []Waiter      `json:"waiting"`
	Unleased     []Unleased    `json:"unleased"`
	// Pool are the LPUs that can be leased, if the config names them; nil: all LPUs of
	// the node.
	Pool []pci.Address `json:"pool,omitempty"`
	// Closed says why no LPU of this node can be leased; "" if they can.
	Closed string `json:"closed,omitempty"`
	// UsersHidden: the arbiter cannot see all processes, so LPUs may be in use without a
	// lease that are not in Unleased.
	UsersHidden bool `json:"usersHidden,omitempty"`
}

// decode reads one JSON document of at most limit bytes into v. Keys that v does not have
// are errors.
func decode(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("longer than %d bytes", limit)
	}
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON document")
	}
	return nil
}

// ParseRequest reads a request as it came over the socket. The error says what is wrong
// with it.
func ParseRequest(data []byte) (*Request, error) {
	var r Request
	if err := decode(data, maxRequest, &r); err != nil {
		return nil, err
	}
	if r.APIVersion != statefile.APIVersion {
		return nil, fmt.Errorf("apiVersion %.40q; expected %s", r.APIVersion, statefile.APIVersion)
	}
	var faults []error // of each request in it; nil: none
	if w := r.Wish; w != nil {
		faults = append(faults, errors.Join(w.check(), checkTime(w.For, 0), checkCommand(w.Command)))
	}
	if r.Bind != nil {
		faults = append(faults, checkContainer(r.Bind.Container))
	}
	if k := r.Reserve; k != nil {
		faults = append(faults, errors.Join(k.check(), checkTime(k.For, time.Second), CheckReason(k.Reason)))
	}
	if r.Release != nil {
		faults = append(faults, checkID(r.Release.ID))
	}
	if r.Extend != nil {
		faults = append(faults, errors.Join(checkID(r.Extend.ID), checkTime(r.Extend.For, time.Second)))
	}
	if r.End != nil {
		faults = append(faults, checkLease(r.End.ID))
	}
	for _, asked := range []bool{r.List != nil, r.ReleaseAll != nil, r.Queue != nil} {
		if asked {
			faults = append(faults, nil)
		}
	}
	if r.Usage != nil {
		faults = append(faults, r.Usage.Check())
	}
	if r.Retry != nil {
		faults = append(faults, nil)
	}
	if len(faults) != 1 {
		return nil, fmt.Errorf("%d requests in one; expected 1", len(faults))
	}
	return &r, faults[0]
}

// check finds what no node can fulfil.
func (s *Selection) check() error {
	if s.Count < 1 || s.Count > maxCount {
		return fmt.Errorf("count %d: expected 1 to %d", s.Count, maxCount)
	}
	if len(s.Must) > s.Count {
		return fmt.Errorf("%d LPUs must be included, and the count is %d", len(s.Must), s.Count)
	}
	for i, a := range s.Must {
		if slices.Contains(s.Must[:i], a) {
			return fmt.Errorf("%s must be included twice", a)
		}
	}
	switch s.Place.Near {
	case allocate.Anywhere, allocate.SameSwitch, allocate.SameSocket:
		if s.Place.NUMANode != nil {
			return errors.New("a NUMA node is named, and the LPUs need not be of one")
		}
	case allocate.SameNUMA:
		if s.Place.NUMANode != nil && (*s.Place.NUMANode < 0 || *s.Place.NUMANode > 1<<16) {
			return fmt.Errorf("there is no NUMA node %d", *s.Place.NUMANode)
		}
	default:
		return fmt.Errorf("near %.40q: expected %s, %s or %s", s.Place.Near, allocate.SameSwitch, allocate.SameSocket, allocate.SameNUMA)
	}
	return nil
}

func checkTime(t, least time.Duration) error {
	if t < least || t > maxTime {
		return fmt.Errorf("a time of %s: expected %s to %s", t, least, maxTime)
	}
	return nil
}

// CheckReason finds what cannot be shown on one line.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > maxReason || !utf8.ValidString(reason) ||
		strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("reason %.40q: expected one line with at most %d bytes", reason, maxReason)
	}
	return nil
}

func checkCommand(command string) error {
	if command == "" || len(command) <= maxCommand && CheckReason(command) == nil {
		return nil
	}
	return fmt.Errorf("command %.40q: expected one line with at most %d bytes", command, maxCommand)
}

func checkID(id string) error {
	if _, err := number(id, "r"); err != nil {
		return fmt.Errorf("%.40q is not the id of a reservation, such as r3", id)
	}
	return nil
}

func checkContainer(id string) error {
	if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return fmt.Errorf("%.80q is not the id of a container: 64 hexadecimal digits", id)
	}
	return nil
}

// number is the number in an id such as "r3".
func number(id, letter string) (uint64, error) {
	digits, found := strings.CutPrefix(id, letter)
	if !found || strings.HasPrefix(digits, "0") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(digits, 10, 53)
}

// marshal makes an answer of bounded size: of a list that is longer, what is said last is
// left out.
func (a *Answer) marshal() ([]byte, error) {
	if a.text != nil {
		return a.text, nil
	}
	a.APIVersion = statefile.APIVersion
	data, err := json.Marshal(a)
	for q := a.Queue; q != nil && len(q.Waiting) > 1 && len(data) > maxAnswer; data, err = json.Marshal(a) {
		q.Waiting, q.More = q.Waiting[:len(q.Waiting)/2], true
	}
	if a.List == nil {
		return data, err
	}
	short := *a.List
	for _, leave := range []func(){func() { short.Unleased = nil }, func() { short.Waiting = nil }, func() { short.Reservations = nil }} {
		if err != nil || len(data) <= maxAnswer {
			break
		}
		leave()
		data, err = json.Marshal(Answer{APIVersion: a.APIVersion, List: &short})
	}
	return data, err
}
