package lease

import (
	"context"
	"errors"
	"net"

	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// maxArriving is how many connections there are at once of whom it is not known yet who
// they are. Who comes then waits.
const maxArriving = 1024

// unknown is the uid of a client until it is known which user it is. For all of them
// there is one relay.
const unknown = -1

// room is where connections come from while there is room for more of whom it is not known
// yet who they are; nil while there is none.
func (a *Arbiter) room() <-chan *net.UnixConn {
	if len(a.arriving) >= maxArriving {
		return nil
	}
	return a.arrivals
}

// admit takes new connections.
func (a *Arbiter) admit(ctx context.Context, conn *net.UnixConn) {
	a.welcome(ctx, conn)
	for range cap(a.arrivals) {
		select {
		case conn = <-a.room():
			a.welcome(ctx, conn)
		default:
			return
		}
	}
}

// welcome takes in a connection when it is known who has connected. That is found out
// beside the loop of Serve, because the system's resolver may hang.
func (a *Arbiter) welcome(ctx context.Context, conn *net.UnixConn) {
	a.last++
	peer, err := credentials(conn)
	c := &connection{UnixConn: conn, conn: a.last, peer: Peer{UID: unknown}}
	c.relayed = (err != nil || peer.UID != 0) && (a.Relay || mayHaveRights(conn))
	if err != nil {
		a.close(ctx, c)
		return
	}
	a.arriving[c] = true
	go func() {
		who, refused := a.Describe(ctx, peer)
		a.do(func() {
			delete(a.arriving, c)
			if refused == nil {
				c.peer = who
				refused = a.makeRoom(ctx, who.UID)
			}
			if refused != nil {
				_ = c.send(Answer{Refused: refused})
				a.close(ctx, c)
				return
			}
			a.take(ctx, c)
			a.begin(ctx, c)
		})
	}()
}

// Identify finds out which user a peer is. It returns a refusal where that is not clear.
func Identify(ctx context.Context, people *person.People, p Peer) (Peer, *Refusal) {
	who, err := people.Who(ctx, p.UID)
	if s, ok := errors.AsType[*person.Stranger](err); ok {
		return p, refuse(finding.LeaseUser, s.Message, s.Remedy)
	}
	if err != nil {
		return p, refuse(finding.LeaseBusy, "so many have connected at once that it cannot be found out who all of them are", "ask again")
	}
	if who.Container {
		p.Via = p.UID
	}
	p.UID, p.User = who.UID, who.Name
	return p, nil
}
