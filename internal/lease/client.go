package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Client is a connection to the arbiter. After a wish that was fulfilled it is the lease:
// the lease lasts until the last descriptor of this connection is closed, in whatever
// process.
type Client struct {
	conn *net.UnixConn
	turn sync.Mutex // one request at a time
	over *Over      // that came while something else was asked
}

// Dial connects to the arbiter that listens at path. If there is none, or the user may
// not ask it, the error is a [*Refusal].
func Dial(path string) (*Client, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		return &Client{conn: conn}, nil
	}
	r := &Refusal{ID: finding.LeaseUnreachable, Message: fmt.Sprintf("%s: %v", path, errors.Unwrap(errors.Unwrap(err)))}
	switch {
	case errors.Is(err, unix.EAGAIN): // more ask at this moment than its socket holds
		r.ID, r.Remedy = finding.LeaseBusy, "ask again"
	case errors.Is(err, fs.ErrPermission):
		r.Remedy = "only root and the group lpu may lease LPUs: sudo usermod -aG lpu USER, and log in again"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		r.Remedy = "have systemd listen there: sudo systemctl enable --now lpuctl-lease.socket"
	}
	return nil, r
}

// Patience is how long a user who sets no limit waits for an arbiter that is busy.
const Patience = 10 * time.Second

// Pauses between two tries of [Patiently].
const (
	firstTry = 20 * time.Millisecond
	mostTry  = 2 * time.Second
)

// Patiently asks again while the arbiter is busy ([finding.LeaseBusy]), with pauses that
// grow, until that has taken a time. The error is the latest one.
func Patiently(ctx context.Context, limit time.Duration, ask func() error) error {
	var busy error
	for pause, left := firstTry, limit; ; pause = min(2*pause, mostTry) {
		err := ask()
		r, refused := errors.AsType[*Refusal](err)
		switch {
		// The arbiter has hung up when it refused.
		case err != nil && !refused && busy != nil && ctx.Err() == nil:
			return busy
		case !refused || r.ID != finding.LeaseBusy:
			return err
		}
		busy = err
		wait := pause/2 + rand.N(pause)
		if left -= wait; left < 0 {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close closes this descriptor of the connection. The lease ends with it unless another
// process has one; see [Client.File].
func (c *Client) Close() error { return c.conn.Close() }

// File returns another descriptor of the connection, for a process that is to keep the
// lease. The caller closes it.
func (c *Client) File() (*os.File, error) { return c.conn.File() }

// Wish asks for a lease and waits for the answer. While the wish waits in the queue,
// onWait is called whenever its place changes. The error is a [*Refusal] if the arbiter
// refuses, that of ctx if it ends first, and else that of the connection. After an error
// the caller closes the connection, because the wish may still wait. A lease ends with
// the connection.
func (c *Client) Wish(ctx context.Context, w Wish, onWait func(Place)) (*Grant, error) {
	a, err := c.ask(ctx, Request{Wish: &w}, onWait)
	return a.Granted, err
}

// Bind makes the lease of this connection last until a container ends, even if the
// connection is closed before. The container must run.
func (c *Client) Bind(ctx context.Context, container string) error {
	var err error
	for range 3 { // to bind twice is no harm
		if _, err = c.ask(ctx, Request{Bind: &Bind{container}}, nil); !errors.Is(err, errRestarted) {
			break
		}
	}
	return err
}

// Over waits until the time of the lease is over or root has ended it. The error is that
// ctx ends, or that the connection is lost. The lease itself lasts on until the connection
// is closed, because the arbiter takes no LPU away from a process that may still use it.
func (c *Client) Over(ctx context.Context) (Over, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	if over := c.over; over != nil {
		c.over = nil
		return *over, nil
	}
	for {
		a, err := c.receive(ctx)
		switch {
		case err != nil:
			return Over{}, err
		case a.Over != nil:
			return *a.Over, nil
		case a.Granted == nil: // that is what an arbiter says that was started again
			return Over{}, errUnexpected
		}
	}
}

// Reserve keeps LPUs that are free now for the user.
func (c *Client) Reserve(ctx context.Context, r Reserve) (*Reservation, error) {
	a, err := c.ask(ctx, Request{Reserve: &r}, nil)
	return a.Reserved, err
}

// Release gives a reservation back, which is the user's own unless it is root who asks.
// Leases of its LPUs stay.
func (c *Client) Release(ctx context.Context, id string) error {
	_, err := c.ask(ctx, Request{Release: &Release{id}}, nil)
	return err
}

// Extend adds a time to the end of a reservation, which is the user's own unless it is
// root who asks.
func (c *Client) Extend(ctx context.Context, id string, by time.Duration) (*Reservation, error) {
	a, err := c.ask(ctx, Request{Extend: &Extend{id, by}}, nil)
	return a.Reserved, err
}

// Retry has the hook run again on an LPU, and waits until that has ended. Only root and
// the user of the arbiter may ask for that.
func (c *Client) Retry(ctx context.Context, lpu pci.Address) error {
	_, err := c.ask(ctx, Request{Retry: &Retry{lpu}}, nil)
	return err
}

// List returns all that the arbiter knows.
func (c *Client) List(ctx context.Context) (*List, error) {
	a, err := c.ask(ctx, Request{List: &struct{}{}}, nil)
	return a.List, err
}

var errUnexpected = errors.New("the arbiter has given an unexpected answer: its lpuctl and this one are of different versions")

// errRestarted is the error that an arbiter was started again, which did not get the
// request, or has not answered it yet.
var errRestarted = errors.New("the arbiter was started again: ask again")

// ask sends a request and returns its answer, which has what was asked for unless there
// is an error.
func (c *Client) ask(ctx context.Context, r Request, onWait func(Place)) (Answer, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	r.APIVersion = statefile.APIVersion
	data, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	// Where the arbiter has closed the connection already, it has said why.
	if _, err := c.conn.Write(data); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return Answer{}, fmt.Errorf("the arbiter does not take the request: %w", err)
	}
	for {
		a, err := c.receive(ctx)
		switch {
		case err != nil:
			return Answer{}, err
		case a.Refused != nil:
			return Answer{}, a.Refused.orOutdated()
		case a.Waiting != nil && r.Wish != nil:
			if onWait != nil {
				onWait(*a.Waiting)
			}
		case a.Over != nil: // of a lease that this connection has already
			c.over = a.Over
		case a.answers(&r):
			return a, nil
		case a.Granted != nil:
			return Answer{}, errRestarted
		default:
			return Answer{}, errUnexpected
		}
	}
}

// answers reports whether an answer has what a request asks for.
func (a *Answer) answers(r *Request) bool {
	switch {
	case r.Wish != nil:
		return a.Granted != nil
	case r.Reserve != nil, r.Extend != nil:
		return a.Reserved != nil
	case r.List != nil:
		return a.List != nil
	case r.ReleaseAll != nil:
		return a.Released != nil
	case r.End != nil:
		return a.Ended != nil
	case r.Queue != nil:
		return a.Queue != nil
	case r.Usage != nil:
		return a.Usage != nil
	}
	return a.Done != nil
}

// receive waits for the next answer.
func (c *Client) receive(ctx context.Context) (a Answer, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() { // the next receive has a deadline of its own
			_ = c.conn.SetReadDeadline(time.Time{})
		}
	}()
	data := make([]byte, maxAnswer+1)
	n, err := c.conn.Read(data)
	if errors.Is(err, unix.ECONNRESET) { // the kernel says it once, before what was sent last
		n, err = c.conn.Read(data)
	}
	if ctx.Err() != nil {
		return a, ctx.Err()
	}
	if err != nil {
		return a, fmt.Errorf("the arbiter has ended: %w", err)
	}
	if err := decode(data[:n], maxAnswer, &a); err != nil {
		return a, fmt.Errorf("the arbiter's answer: %w", err)
	}
	if a.APIVersion != statefile.APIVersion {
		return a, errUnexpected
	}
	return a, nil
}

// DialIn connects to the arbiter of the node under root.
func DialIn(root host.Root) (*Client, error) {
	socket, err := root.Resolve(Socket)
	if err != nil {
		return nil, err
	}
	return Dial(socket)
}
