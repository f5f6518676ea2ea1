package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// listen serves /healthz, /readyz and /metrics until ctx ends. If the address is taken, for example by an instance that is
// about to end, pods are served nevertheless and listen tries again. more are metrics that the server does not have; it may be nil.
func (a *app) listen(ctx context.Context, address string, server *plugin.Server, more func() []*node.Metric) {
	if address == "" {
		return
	}
	h := &http.Server{
		Handler: handler(server, more), ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	defer context.AfterFunc(ctx, func() { _ = h.Close() })()
	for logged := false; ctx.Err() == nil; logged = true {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			err = h.Serve(listener)
		}
		if !logged && ctx.Err() == nil {
			a.log.Warn("health and metrics are not served; pods are", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func handler(server *plugin.Server, more func() []*node.Metric) http.Handler {
	v := readVersion()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, server.Ready()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, server.Plugin.Node.Alive()) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", node.MetricsType)
		err := server.WriteMetrics(w, "version", v.Version, "goversion", v.Go)
		if err == nil && more != nil { // else who asked is gone
			_ = node.WriteMetrics(w, more()...)
		}
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
