package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func refuse(id finding.ID, message, remedy string) *Refusal { return &Refusal{id, message, remedy} }

// closed is the refusal where no LPU can be leased. Without a remedy it is a pool.
func closed(why, remedy string) *Refusal {
	return refuse(finding.LeaseClosed, why, cmp.Or(remedy, "name the LPUs that can be leased in leases.pool of /etc/lpuctl/config.yaml, "+
		"start what hands out the others again, and then the arbiter: sudo systemctl try-restart lpuctl-lease.service"))
}

// closed is the refusal while no LPU can be leased.
func (b *Book) closed() *Refusal { return closed(b.Closed, b.ClosedRemedy) }

func (b *Book) refuse(to Conn, id finding.ID, message, remedy string) {
	b.send(to, Answer{Refused: refuse(id, message, remedy)})
}

// never is the reason why a wish could not be fulfilled if all LPUs were free; nil if it
// could.
func (b *Book) never(uid int, s *Selection, limit time.Duration) *Refusal {
	if b.Closed != "" {
		return b.closed()
	}
	if uid != 0 && b.Limits.LPUs > 0 && s.Count > b.Limits.LPUs {
		return refuse(finding.LeaseLimit, fmt.Sprintf("%d LPUs asked for, and a user may have %d", s.Count, b.Limits.LPUs), "ask for fewer")
	}
	if uid != 0 && b.Limits.Time > 0 && limit > b.Limits.Time {
		return refuse(finding.LeaseLimit, fmt.Sprintf("a time of %s asked for, and a user may have LPUs for %s", rounded(limit),
			rounded(b.Limits.Time)), "ask for a shorter time")
	}
	all := b.cards(b.inPool)
	if len(b.sets(s, all)) == 0 {
		return refuse(finding.LeaseImpossible, b.impossible(s, all), "ask for fewer LPUs, or leave out what they must have in common")
	}
	return nil
}

func (b *Book) impossible(s *Selection, all []int) string {
	for _, a := range s.Must {
		if !slices.ContainsFunc(all, func(card int) bool { return b.lpu(card).Address == a }) {
			return fmt.Sprintf("%s must be included, and is not among the LPUs that can be leased on this node", a)
		}
	}
	if s.Connected && s.Count > 1 && !b.fabric.Cabled() {
		return "LPUs that are connected asked for, and no ring table says which are"
	}
	text := fmt.Sprintf("%d LPUs asked for", s.Count)
	if s.Connected {
		text += " that are connected"
	}
	if len(s.Must) > 0 {
		text += " with those that must be included"
	}
	if s.Place.Near != allocate.Anywhere {
		text += " on " + s.Place.String()
	}
	return fmt.Sprintf("%s: there are none among the %d LPUs that can be leased on this node", text, len(all))
}

// noneFree is the refusal of a wish that could be fulfilled at another time.
func (b *Book) noneFree(now time.Duration, uid int, s *Selection, blocked marks) *Refusal {
	if r := b.ownFault(uid, s); r != nil {
		return r
	}
	return refuse(finding.LeaseNoneFree, "no such LPUs are free: "+b.taken(now, uid, s, blocked), "wait for them (--wait), or ask for fewer")
}

// why says what a wish in the queue waits for; the LPUs that others before it can use are
// blocked. Where now is negative it says no times, which would be different each time.
func (b *Book) why(now time.Duration, e *entry, blocked marks) string {
	if r := b.ownFault(e.UID, &e.Wish.Selection); r != nil {
		return r.Message + "; until that changes others go first"
	}
	return b.taken(now, e.UID, &e.Wish.Selection, blocked)
}

// ownFault is the refusal of a wish that only the user's own release could let be
// fulfilled; nil if others can.
func (b *Book) ownFault(uid int, s *Selection) *Refusal {
	switch {
	case len(b.sets(s, b.offered(uid))) == 0 || len(b.possible(uid, s)) > 0:
		return nil
	case len(b.sets(s, b.obtainable(uid))) == 0:
		return b.ownRefusal(uid)
	}
	return b.limitRefusal(uid)
}

// ownRefusal is the refusal because of what a user has leased.
func (b *Book) ownRefusal(uid int) *Refusal {
	var has []string
	for _, e := range b.leases {
		if e.UID == uid {
			has = append(has, strings.Join(named(e.LPUs), " ")+" (lease "+e.ID+")")
		}
	}
	return refuse(finding.LeaseNoneFree, "without what you have leased yourself there are too few such LPUs: "+strings.Join(has, ", "),
		"end what has that lease, or ask for fewer")
}

// limitRefusal is the refusal because of the limit of a user.
func (b *Book) limitRefusal(uid int) *Refusal {
	if e := b.overdue(uid); e != nil {
		return refuse(finding.LeaseLimit, fmt.Sprintf("the time of lease %s is over, and it has not ended", e.ID), "end what has that lease")
	}
	return refuse(finding.LeaseLimit, fmt.Sprintf("a user may have %d LPUs, leased and reserved, and has %d", b.Limits.LPUs, len(b.has(uid))),
		"end a lease, or release a reservation: lpuctl list shows them")
}

// taken says of each LPU that a wish may want why it is not free: "lpu0 lpu1 leased by
// bob(1000), lpu2 in use by vllm(12)".
func (b *Book) taken(now time.Duration, uid int, s *Selection, blocked marks) string {
	leased := b.leased()
	for _, a := range s.Must {
		if len(b.cards(func(l *discovery.LPU) bool { return l.Address == a })) == 0 {
			return a.String() + " is not in this machine now"
		}
	}
	var reasons []string
	of := map[string][]string{}
	for i := range b.Inventory.LPUs {
		l := b.lpu(i)
		if !s.Place.Allows(l) || !b.inPool(l) {
			continue
		}
		reason := b.reason(now, uid, l, leased[l.Address], blocked[i])
		if of[reason] == nil {
			reasons = append(reasons, reason)
		}
		of[reason] = append(of[reason], l.Name)
	}
	var texts []string
	for _, reason := range reasons {
		texts = append(texts, strings.Join(of[reason], " ")+" "+reason)
	}
	if len(texts) == 0 {
		return "they are not in this machine now"
	}
	return strings.Join(texts, ", ")
}

// reason says why an LPU is not free for a user, or that it is.
func (b *Book) reason(now time.Duration, uid int, l *discovery.LPU, holder *entry, blocked bool) string {
	if holder != nil {
		return "leased by " + holder.String() + left(now, holder.Until)
	}
	for _, r := range b.reservations {
		for _, kept := range r.LPUs {
			if kept.Address == l.Address && (r.UID != uid || blocked) {
				return "reserved by " + r.String() + left(now, r.Until) + ": " + r.Reason
			}
		}
	}
	kept := b.whyKept(uid, l.Address)
	switch {
	case !l.Fit():
		return sick(l)
	case l.Cordoned != nil:
		return "cordoned"
	case b.Pods[l.Address] != "":
		return "in use by " + b.Pods[l.Address]
	case len(l.Users) > 0:
		return "in use without a lease by " + l.Users[0].String()
	case kept != "":
		return kept
	case blocked:
		return "free, and somebody waits for it since earlier"
	}
	if b.endedSince(l.Address, b.Began) {
		return "given back just now"
	}
	return "free"
}

// sick says what is wrong with an LPU that is not fit: "unhealthy (bad state)".
func sick(l *discovery.LPU) string {
	text := l.State()
	if first := l.Reasons.FirstError(); first != nil && l.Usable {
		text += " (" + strings.ReplaceAll(string(first.ID), "-", " ") + ")"
	}
	return text
}

// oneLine makes a text one that CheckReason takes, or "".
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(text), "?"))
	for len(text) > maxReason {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return strings.TrimSpace(text)
}

// left says how much time there is until then.
func left(now, until time.Duration) string {
	switch {
	case now < 0 || until == 0:
		return ""
	case until <= now:
		return ", whose time is over"
	}
	return " for another " + rounded(until-now)
}

// rounded formats a time for people: "1h30m".
func rounded(t time.Duration) string {
	if t >= time.Minute {
		text := strings.TrimSuffix(t.Round(time.Minute).String(), "0s")
		return strings.Replace(text, "h0m", "h", 1)
	}
	return t.Round(time.Second).String()
}
