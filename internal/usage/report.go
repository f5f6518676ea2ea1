package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Query is what is asked for: hours that begin before Until and end after Since.
type Query struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	User  string    `json:"user,omitempty"`  // name or uid; "": all who may be shown
	After *int      `json:"after,omitempty"` // only users with higher uids than that; nil: all
}

// Check finds what no journal can answer.
func (q *Query) Check() error {
	if q.Since.IsZero() || !q.Since.Before(q.Until) {
		return fmt.Errorf("from %s to %s: expected a time that ends after it begins",
			q.Since.Format(time.RFC3339), q.Until.Format(time.RFC3339))
	}
	if q.User != Name(q.User) {
		return fmt.Errorf("user %.40q: expected a name or a uid", q.User)
	}
	return nil
}

// Ask is a query by a user. Who is not root is shown what is of that uid.
type Ask struct {
	Query
	By int
}

func (k *Ask) wants(r *Row) bool {
	return (k.By == 0 || k.By == r.UID) && r.Hour.Before(k.Until) && r.Hour.Add(time.Hour).After(k.Since) &&
		(k.User == "" || r.is(k.User)) && (k.After == nil || r.UID > *k.After)
}

// Report is how much users have had of the LPUs, in whole hours of the clock.
type Report struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Users []User    `json:"users"` // by uid
	// Unread are lines of the journal that cannot be read; what they had is missing.
	Unread int `json:"unreadLines,omitempty"`
	// More: there are users with higher uids; see [Query.After].
	More bool `json:"more,omitempty"`
}

// Sum is how much was had.
type Sum struct {
	Leases int     `json:"leases"`      // that began
	Leased float64 `json:"leasedHours"` // LPUs times hours
	Open   float64 `json:"openHours"`   // of these, in which the node was open
}

// User is what one user has had.
type User struct {
	UID  int    `json:"uid"`
	Name string `json:"user,omitempty"` // as it was last; absent: it was not known
	Sum
	Waits       int       `json:"waits"` // in the queue, that have ended
	MeanWait    float64   `json:"meanWaitSeconds"`
	LongestWait float64   `json:"longestWaitSeconds"`
	LPUs        []LPUPart `json:"lpus"` // by address
}

// LPUPart is what one user has had of one LPU.
type LPUPart struct {
	LPU
	Sum
}

// add adds up times in milliseconds, which a float64 has without loss.
func (s *Sum) add(leases int, leased, open float64) {
	s.Leases += leases
	s.Leased += leased
	s.Open += open
}

// inHours has hours where there were milliseconds.
func (s *Sum) inHours() {
	hour := float64(time.Hour.Milliseconds())
	s.Leased, s.Open = s.Leased/hour, s.Open/hour
}

// adding is a report that is being made.
type adding struct {
	Report
	users map[int]*addingUser
}

type addingUser struct {
	User
	named time.Time // the hour of the name
	lpus  map[string]*addingLPU
}

type addingLPU struct {
	LPUPart
	named time.Time
}

func (a *adding) add(r *Row) {
	u := a.users[r.UID]
	if u == nil {
		u = &addingUser{User: User{UID: r.UID}, lpus: map[string]*addingLPU{}}
		a.users[r.UID] = u
	}
	newer(&u.Name, &u.named, r.User, r.Hour)
	if r.Address == "" {
		u.Leases += r.Leases
		u.Waits += r.Waits
		u.MeanWait += float64(r.Waited)
		u.LongestWait = max(u.LongestWait, float64(r.Longest))
		return
	}
	l := u.lpus[r.Address]
	if l == nil {
		l = &addingLPU{LPUPart: LPUPart{LPU: LPU{Address: r.Address}}}
		u.lpus[r.Address] = l
	}
	newer(&l.Name, &l.named, r.Name, r.Hour)
	l.add(r.Leases, float64(r.Leased), float64(r.Open))
	u.add(0, float64(r.Leased), float64(r.Open))
}

// newer takes a name of another hour if that is later, and of two of one hour always the
// same.
func newer(name *string, named *time.Time, other string, hour time.Time) {
	if other != "" && (*name == "" || hour.After(*named) || hour.Equal(*named) && other > *name) {
		*name, *named = other, hour
	}
}

// report is what was added up.
func (a *adding) report() *Report {
	second := float64(time.Second.Milliseconds())
	a.Users = []User{}
	for _, uid := range slices.Sorted(maps.Keys(a.users)) {
		u := a.users[uid]
		u.inHours()
		u.MeanWait, u.LongestWait = u.MeanWait/float64(max(1, u.Waits))/second, u.LongestWait/second
		u.LPUs = []LPUPart{}
		for _, address := range slices.Sorted(maps.Keys(u.lpus)) {
			l := u.lpus[address]
			l.inHours()
			u.LPUs = append(u.LPUs, l.LPUPart)
		}
		a.Users = append(a.Users, u.User)
	}
	return &a.Report
}

// Cut leaves out users so that the JSON of the report has at most so many bytes. Of the
// first user, who is never left out, the last LPUs are.
func (r *Report) Cut(limit int) {
	size := 200 // of what is not of a user
	for i := range r.Users {
		u := &r.Users[i]
		for i == 0 && size+sizeOf(u) > limit && len(u.LPUs) > 0 {
			u.LPUs = u.LPUs[:len(u.LPUs)*3/4]
		}
		if size += sizeOf(u); size > limit {
			r.Users, r.More = r.Users[:i], true
			return
		}
	}
}

func sizeOf(u *User) int {
	data, _ := json.Marshal(u)
	return len(data) + 1
}

// Reports adds up what the journal has, for each who asks. unwritten are rows that are
// newer than those of the journal. Hours that are older than rows are kept are left out.
func (j *Journal) Reports(asks []Ask, unwritten []Row, now time.Time) ([]*Report, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	adds := make([]adding, len(asks))
	add := func(r *Row) {
		for i := range asks {
			if asks[i].wants(r) {
				adds[i].add(r)
			}
		}
	}
	oldest, latest := now.Add(-j.Keep).Truncate(time.Hour), map[key]Row{}
	take := func(r *Row) {
		switch {
		case r.Hour.Before(oldest):
		case r.Run == "":
			add(r)
		case slices.ContainsFunc(asks, func(k Ask) bool { return k.wants(r) }):
			latest[r.key()] = *r
		}
	}
	for i, k := range asks {
		adds[i] = adding{Report{Since: k.Since, Until: k.Until}, map[int]*addingUser{}}
	}
	unread := 0
	for n := older; n >= 0; n-- {
		lines, err := j.read(n, take)
		if _, bad := errors.AsType[*unusable](err); bad {
			lines, err = 1, nil
		}
		if err != nil {
			return nil, err
		}
		unread += lines
	}
	for i := range unwritten {
		take(&unwritten[i])
	}
	for _, r := range latest {
		add(&r)
	}
	reports := make([]*Report, len(asks))
	for i := range adds {
		adds[i].Unread = unread
		reports[i] = adds[i].report()
	}
	return reports, nil
}
