package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Observed is what /healthz, /readyz and /metrics tell of.
type Observed interface {
	// Alive returns nil if its loops turn.
	Alive() error
	// Ready returns nil if it does what it is there for. phase says what that is.
	Ready() (phase string, err error)
	// Metrics returns what it measures. build are labels that identify the build.
	Metrics(build ...string) []*Metric
}

// answerPatience is for how long answers that have begun may go on after their server's
// end.
const answerPatience = time.Second

// ServeHTTP serves /healthz, /readyz and /metrics at a listener until ctx ends. An answer
// that has begun by then ends first: one that is cut off counts as a failed scrape. build
// are labels that identify the build.
func ServeHTTP(ctx context.Context, listener net.Listener, of Observed, log *slog.Logger, build ...string) error {
	server := &http.Server{
		Handler: handler(of, build), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	defer func() { _ = server.Close() }()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	err := server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerPatience)
	defer cancel()
	_ = server.Shutdown(patience) // what goes on after that is closed
	return http.ErrServerClosed
}

// Listen serves /healthz, /readyz and /metrics until ctx ends. If the address is taken,
// for example by an instance that is about to end, pods are served nevertheless and
// listen tries again.
func Listen(ctx context.Context, address string, of Observed, log *slog.Logger, build ...string) {
	if address == "" {
		return
	}
	for logged := false; ctx.Err() == nil; logged = true {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			if logged {
				log.Info("health and metrics are served", "address", address)
			}
			err = ServeHTTP(ctx, listener, of, log, build...)
		}
		if !logged && ctx.Err() == nil {
			log.Warn("health and metrics are not served; pods are", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func handler(of Observed, build []string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		phase, err := of.Ready()
		answer(w, phase, err)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok", of.Alive()) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", MetricsType)
		// The client that asked may be gone.
		_ = WriteMetrics(w, of.Metrics(build...)...)
	})
	return mux
}

func answer(w http.ResponseWriter, good string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, good)
}
