// Package person says which user of the machine a uid belongs to. A user with subordinate
// uids (subuid(5)) has 65,536 of them and more, and is one person all the same.
package person

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Person is a user of the machine.
type Person struct {
	UID  int
	Name string // "" if no name is known
	// Container: the uid in question is a subordinate one of this user.
	Container bool
}

// Stranger is the error that a uid is of no user, or that it is not clear whose it is.
type Stranger struct{ Message, Remedy string }

func (s *Stranger) Error() string { return s.Message }

// ErrBusy is the error that so much is asked about one user at once that no more is.
var ErrBusy = errors.New("busy")

// The files that say who is who, below the root.
const (
	passwdFile   = "/etc/passwd"
	subuidFile   = "/etc/subuid"
	nsswitchFile = "/etc/nsswitch.conf"
)

const (
	fileLimit = 16 << 20 // bytes; passwd of 100,000 users has eight million
	// firstUser is the first uid of a user who is no part of the system (UID_MIN in
	// login.defs(5)).
	firstUser = 1000
	noUser    = 65534 // the uid of the user that is none (systemd's UIDS-GIDS.md)
)

// People knows the users of the machine. It is safe for concurrent use.
type People struct {
	root  host.Root
	group string

	mu     sync.Mutex
	read   map[string][]byte // the content of each file when it was parsed
	users  *accounts
	ranges []subuids
	source string // of subordinate uids; "": the file

	resolver resolver
}

// In returns the users of the machine under root. The members of a group are those who
// are asked about where subordinate uids are in no file.
func In(root host.Root, group string) *People {
	return &People{root: root, group: group, read: map[string][]byte{}, users: parsePasswd(nil), resolver: resolver{
		lines: map[string]*line{}, limit: waitLimit, now: time.Now, atOnce: make(chan struct{}, atOnce),
	}}
}

// known is what files say.
type known struct {
	users  *accounts
	ranges []subuids
	// foreign: subordinate uids are not those of the file.
	foreign bool
}

// load reads the files. Each is parsed only if it has changed.
func (p *People) load() (known, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := errors.Join(
		p.parse(passwdFile, func(data []byte) { p.users = parsePasswd(data) }),
		p.parse(subuidFile, func(data []byte) { p.ranges = parseSubuid(data) }),
		p.parse(nsswitchFile, func(data []byte) { p.source = subidSource(data) }),
	)
	return known{p.users, p.ranges, isForeign(p.source)}, err
}

func (p *People) parse(file string, parse func([]byte)) error {
	data, err := p.root.Read(file, fileLimit)
	if err != nil && !host.IsAbsent(err) {
		return err
	}
	if !bytes.Equal(data, p.read[file]) {
		parse(data)
		p.read[file] = data
	}
	return nil
}

// Who returns whose a uid is. What no file says is asked of the system's resolver, which
// may take a second. The error is [ErrBusy], that of ctx, or a [*Stranger].
func (p *People) Who(ctx context.Context, uid int) (Person, error) {
	known, err := p.load()
	if host.IsShortage(err) {
		return Person{}, ErrBusy
	}
	c := &candidates{known: known, people: p, uid: uid, err: err}
	if err != nil {
		return Person{}, c.unclear("see what is wrong with that file")
	}
	name, listed := known.users.names[uid]
	if uid != 0 {
		c.findOwners(ctx, listed)
	}
	if listed && len(c.owners) == 0 {
		return Person{UID: uid, Name: name}, nil
	}
	c.self(ctx, listed, name)
	for _, owner := range c.owners {
		c.owner(ctx, owner)
	}
	if errors.Is(c.err, ErrBusy) {
		return Person{}, ErrBusy
	}
	if ctx.Err() != nil {
		return Person{}, ctx.Err()
	}
	return c.decide()
}

// Users returns the uids of all users whose a uid may be: its own, and the owners of
// ranges that have it. It may take a second, as Who. What cannot be found out is left out,
// and the error says that there may be more.
func (p *People) Users(ctx context.Context, uid int) ([]int, error) {
	known, err := p.load()
	c := &candidates{known: known, people: p, uid: uid, err: err}
	c.add(Person{UID: uid})
	if _, listed := known.users.names[uid]; uid != 0 {
		c.findOwners(ctx, listed)
	}
	for _, owner := range c.owners {
		c.owner(ctx, owner)
	}
	uids := []int{}
	for _, person := range c.persons {
		uids = append(uids, person.UID)
	}
	return uids, c.err
}

// Names returns the names of people in passwd, sorted. The resolver is not asked. The error
// is that not all are known.
func (p *People) Names() ([]string, error) {
	known, err := p.load()
	var names []string
	for name, uid := range known.users.uids {
		if uid >= firstUser && uid != noUser {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// candidates are the users whose a uid may be.
type candidates struct {
	known
	people  *People
	uid     int
	owners  []string // of ranges that have it: names and numbers
	persons []Person
	unknown []string // owners of whom no uid is known
	err     error    // why something could not be found out
}

// ask asks at the expense of the owner of the uid, which can have many.
func (c *candidates) ask(ctx context.Context, program string, args ...string) (string, error) {
	of := strconv.Itoa(c.uid)
	if len(c.owners) > 0 {
		of = c.owners[0]
	}
	return c.people.resolver.ask(ctx, of, program, args...)
}

// findOwners finds the ranges that have the uid. A user of passwd does not wait for
// another source than the file.
func (c *candidates) findOwners(ctx context.Context, listed bool) {
	if c.foreign && !listed {
		c.askMembers(ctx)
	}
	for _, r := range c.ranges {
		if !c.foreign && r.has(c.uid) {
			c.addOwner(r.owner)
		}
	}
}

// askMembers asks which ranges the members of the group have: no program says whose a uid
// is.
func (c *candidates) askMembers(ctx context.Context) {
	resolver := &c.people.resolver
	group, err := resolver.ask(ctx, subidLine, "getent", "group", c.people.group)
	c.note(err)
	for _, member := range membersOf(group) {
		text, err := resolver.ask(ctx, subidLine, "getsubids", member)
		c.note(err)
		if err != nil {
			return
		}
		for _, r := range parseSubids(text) {
			if r.has(c.uid) {
				c.addOwner(member)
			}
		}
	}
}

func (c *candidates) addOwner(owner string) {
	if !slices.Contains(c.owners, owner) {
		c.owners = append(c.owners, owner)
	}
}

func (c *candidates) note(err error) {
	if c.err == nil || errors.Is(err, ErrBusy) {
		c.err = cmp.Or(err, c.err)
	}
}

func (c *candidates) add(p Person) {
	if !slices.ContainsFunc(c.persons, func(other Person) bool { return other.UID == p.UID }) {
		p.Container = p.UID != c.uid
		c.persons = append(c.persons, p)
	}
}

// self adds the user of this very uid, if there is one.
func (c *candidates) self(ctx context.Context, listed bool, name string) {
	if !listed {
		text, err := c.ask(ctx, "getent", "passwd", strconv.Itoa(c.uid))
		c.note(err)
		name, listed = parsePasswd([]byte(text)).names[c.uid]
	}
	if listed {
		c.add(Person{UID: c.uid, Name: name})
	}
}

// owner adds the owner of a range.
func (c *candidates) owner(ctx context.Context, owner string) {
	if uid, ok := c.users.uids[owner]; ok {
		c.add(Person{UID: uid, Name: owner})
		return
	}
	uid, numeric := parseID(owner)
	name, listed := c.users.names[uid]
	if numeric && listed {
		c.add(Person{UID: uid, Name: name})
		return
	}
	text, err := c.ask(ctx, "getent", "passwd", owner)
	users := parsePasswd([]byte(text))
	switch {
	case numeric: // it is this user, whatever the name
		c.add(Person{UID: uid, Name: users.names[uid]})
	case users.first >= 0:
		c.add(Person{UID: users.first, Name: owner})
	default:
		c.note(err)
		c.unknown = append(c.unknown, owner)
	}
}

// decide returns whose the uid is.
func (c *candidates) decide() (Person, error) {
	switch names := c.named(); {
	case len(names) > 1:
		return Person{}, &Stranger{
			fmt.Sprintf("uid %d is of more than one user by %s: %s", c.uid, c.where(), strings.Join(names, ", ")),
			fmt.Sprintf("leave it to one of them: sudo usermod --del-subuids %d-%d USER", c.uid, c.uid),
		}
	case len(c.persons) == 1 && c.persons[0].UID == 0 && c.uid != 0:
		return Person{}, c.outside("root, and has none of root's rights")
	case len(c.persons) == 1:
		return c.persons[0], nil
	case len(c.unknown) == 1 && c.err == nil:
		return Person{}, c.outside(c.unknown[0] + ", which is no user of this machine")
	case c.uid < firstUser && len(c.unknown) == 0:
		return Person{UID: c.uid}, nil
	case c.err != nil:
		return Person{}, c.unclear(fmt.Sprintf("see what the resolver says: getent passwd %d", c.uid))
	}
	return Person{}, &Stranger{
		fmt.Sprintf("uid %d is of no user of this machine, and in no range of %s", c.uid, c.where()),
		fmt.Sprintf("run lpuctl as a user, or make the uid one of a user's: sudo usermod --add-subuids %d-%d USER", c.uid, c.uid),
	}
}

// outside is the refusal of a uid in a range that no user can answer for.
func (c *candidates) outside(owner string) *Stranger {
	return &Stranger{
		fmt.Sprintf("uid %d is by %s in a range of %s", c.uid, c.where(), owner), "run lpuctl outside of the container, as a user",
	}
}

func (c *candidates) unclear(remedy string) *Stranger {
	return &Stranger{fmt.Sprintf("it cannot be found out who uid %d is: %v", c.uid, c.err), remedy}
}

// named are the candidates, for people.
func (c *candidates) named() (names []string) {
	for _, p := range c.persons {
		names = append(names, cmp.Or(p.Name, strconv.Itoa(p.UID)))
	}
	return append(names, c.unknown...)
}

// where is the file that says whose subordinate uids are, or who knows it.
func (c *candidates) where() string {
	if c.foreign {
		return c.people.root.Shown(nsswitchFile) + " (subid)"
	}
	return c.people.root.Shown(subuidFile)
}
