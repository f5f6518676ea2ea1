package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Member is a client of an arbiter that does what no honest one does, until it is killed.
type Member struct {
	Socket string
	Rand   *rand.Rand
	List   string // a request that is answered at once
	Wait   string // one that waits in the queue

	kept []*net.UnixConn
}

// most is how many connections a member keeps: fewer than a user may have.
const most = 16

// Run goes on and on. Only what no attack is meant to cause is an error.
func (m *Member) Run() error {
	ways := []func(*net.UnixConn) error{m.waits, m.floods, m.passes, m.forges, m.leaves}
	for {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
		if err != nil { // too many arrive, or the arbiter has just been killed
			time.Sleep(time.Millisecond)
			continue
		}
		if err := ways[m.Rand.IntN(len(ways))](conn); err != nil {
			return err
		}
		if m.kept = append(m.kept, conn); len(m.kept) > most {
			i := m.Rand.IntN(len(m.kept))
			_ = m.kept[i].Close()
			m.kept = append(m.kept[:i], m.kept[i+1:]...)
		}
		time.Sleep(time.Duration(m.Rand.IntN(20)) * time.Millisecond)
	}
}

// waits is in the queue, may get an LPU, and never reads.
func (m *Member) waits(conn *net.UnixConn) error {
	_, _ = conn.Write([]byte(m.Wait))
	return nil
}

// floods asks for more than it reads.
func (m *Member) floods(conn *net.UnixConn) error {
	_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // or for ever
	for range 300 {
		if _, err := conn.Write([]byte(m.List)); err != nil {
			break
		}
	}
	return nil
}

// passes a descriptor whose last close sleeps as long as this process runs.
func (m *Member) passes(conn *net.UnixConn) error {
	fd, listener, err := lingering()
	if err != nil {
		return fmt.Errorf("a descriptor that lingers: %w", err)
	}
	_, _, err = conn.WriteMsgUnix([]byte(m.List), unix.UnixRights(fd), nil)
	if err != nil { // the kernel refuses it, and this close is the last
		_ = unix.Close(listener)
	}
	return unix.Close(fd)
}

// forges what is no request: too long, empty, no JSON, or two in one.
func (m *Member) forges(conn *net.UnixConn) error {
	junk := [][]byte{bytes.Repeat([]byte("x"), 1<<16), {}, []byte("{"), []byte(m.Wait + m.Wait), []byte(m.Wait[:len(m.Wait)-1])}
	_, _ = conn.Write(junk[m.Rand.IntN(len(junk))])
	return nil
}

// leaves as soon as it has asked to wait.
func (m *Member) leaves(conn *net.UnixConn) error {
	_, _ = conn.Write([]byte(m.Wait))
	return conn.Close()
}
