package node

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are made in memory.
type pipes struct {
	made   chan net.Conn
	ctx    context.Context // ends when it is closed
	cancel context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.cancel(); return nil }

func (*pipes) Addr() net.Addr { return &net.UnixAddr{} }

// slow is observed, and its metrics come when asked is taken from the second time.
type slow struct{ asked chan struct{} }

func (slow) Alive() error { return nil }

func (slow) Ready() (string, error) { return "", nil }

func (s slow) Metrics(...string) []*Metric {
	s.asked <- struct{}{}
	s.asked <- struct{}{}
	var all Metrics
	all.Gauge("lpuctl_slow", "It came late.").Set(1)
	return all
}

// TestAnAnswerThatHasBegunIsWhole although the server ends, as at a reload, and one that takes too long does not hold up the end.
func TestAnAnswerThatHasBegunIsWhole(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			of, listener, ended := slow{make(chan struct{})}, &pipes{made: make(chan net.Conn)}, make(chan error, 1)
			listener.ctx, listener.cancel = context.WithCancel(t.Context())
			go func() { ended <- ServeHTTP(ctx, listener, of, slog.New(slog.DiscardHandler)) }()
			client, server := net.Pipe()
			listener.made <- server
			if _, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			<-of.asked
			cancel()
			synctest.Wait()
			start := time.Now()
			var whole bool
			if !late {
				<-of.asked
			}
			if answer, err := http.ReadResponse(bufio.NewReader(client), nil); err == nil {
				text, err := io.ReadAll(answer.Body)
				whole = err == nil && strings.Contains(string(text), "lpuctl_slow 1")
			}
			if whole == late {
				t.Errorf("late %v: whole: %v", late, whole)
			}
			if late {
				<-of.asked
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
			if took := time.Since(start); took > answerPatience {
				t.Errorf("late %v: it ended after %v", late, took)
			}
		})
	}
}
