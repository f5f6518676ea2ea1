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

// HTTPServer returns a server of /healthz, /readyz and /metrics. build are labels that
// identify the build.
func HTTPServer(of Observed, log *slog.Logger, build ...string) *http.Server {
	return &http.Server{
		Handler: handler(of, build), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
}

// Listen serves /healthz, /readyz and /metrics until ctx ends. If the address is taken,
// for example by an instance that is about to end, pods are served nevertheless and
// listen tries again.
func Listen(ctx context.Context, address string, of Observed, log *slog.Logger, build ...string) {
	if address == "" {
		return
	}
	h := HTTPServer(of, log, build...)
	defer context.AfterFunc(ctx, func() { _ = h.Close() })()
	for logged := false; ctx.Err() == nil; logged = true {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			if logged {
				log.Info("health and metrics are served", "address", address)
			}
			err = h.Serve(listener)
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
