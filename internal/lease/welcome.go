package lease

import (
	"context"
	"errors"
	"net"

	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// maxArriving is how many connections there are at once of whom it is not known yet who
// they are.
const maxArriving = 1024

// welcome admits a connection when it is known who has connected. That is found out
// beside the loop of Serve, because the system's resolver may hang.
func (a *Arbiter) welcome(ctx context.Context, conn *net.UnixConn) {
	peer, err := credentials(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	if len(a.arriving) >= maxArriving {
		turnAway(conn, tooManyArrive())
		return
	}
	a.arriving[conn] = true
	go func() {
		peer, refused := a.Describe(ctx, peer)
		a.do(ctx, func() {
			delete(a.arriving, conn)
			if refused != nil {
				turnAway(conn, refused)
				return
			}
			a.admit(ctx, conn, peer)
		})
	}()
}

func turnAway(conn *net.UnixConn, refused *Refusal) {
	_ = (&connection{UnixConn: conn}).send(Answer{Refused: refused})
	_ = conn.Close()
}

func tooManyArrive() *Refusal {
	return refuse(finding.LeaseBusy, "so many have connected at once that it cannot be found out who all of them are", "ask again")
}

// Identify finds out which user a peer is. It returns a refusal where that is not clear.
func Identify(ctx context.Context, people *person.People, p Peer) (Peer, *Refusal) {
	who, err := people.Who(ctx, p.UID)
	if s, ok := errors.AsType[*person.Stranger](err); ok {
		return p, refuse(finding.LeaseUser, s.Message, s.Remedy)
	}
	if err != nil {
		return p, tooManyArrive()
	}
	if who.Container {
		p.Via = p.UID
	}
	p.UID, p.User = who.UID, who.Name
	return p, nil
}
