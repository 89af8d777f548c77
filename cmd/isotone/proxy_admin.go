package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// proxyAdmin has what the admin port of a proxy serves.
type proxyAdmin struct {
	metrics http.Handler
	status  func() any
	ready   func() string // why the proxy is not ready, or ""
	checks  func() []httpapi.Check
}

// adminServer serves it on a separate port: on the client port every path belongs to the
// backends.
type adminServer struct {
	ln   net.Listener // nil: off
	http http.Server
	done chan struct{}
}

// adminTimeout bounds reading, writing and idling of a client of the admin port.
const adminTimeout = 10 * time.Second

// startAdmin serves a on addr; "" disables it.
func startAdmin(addr string, a proxyAdmin) (*adminServer, error) {
	s := &adminServer{done: make(chan struct{})}
	if addr == "" {
		close(s.done)
		return s, nil
	}
	var err error
	if s.ln, err = net.Listen("tcp", addr); err != nil {
		return nil, taken(fmt.Errorf("--admin: %w", err))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics)
	mux.HandleFunc("GET /proxy/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
		w.Header().Set("Cache-Control", httpapi.CacheControl)
		_ = json.NewEncoder(w).Encode(a.status())
	})
	health := func(name string, checks func() []httpapi.Check) {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			body, ok := httpapi.Health(name, checks(), r.URL.RawQuery)
			w.Header().Set("Content-Type", httpapi.ContentTypeText)
			w.Header().Set("Cache-Control", httpapi.CacheControl)
			if !ok {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write([]byte(body))
		})
	}
	health("livez", func() []httpapi.Check { return []httpapi.Check{{Name: "ping"}} })
	health("readyz", a.checks)
	mux.HandleFunc("GET /up", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if why := a.ready(); why != "" {
			w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(httpapi.Body(isotone.CodeOverloaded, why))
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	s.http = http.Server{Handler: mux, ReadTimeout: adminTimeout, WriteTimeout: adminTimeout, IdleTimeout: adminTimeout, MaxHeaderBytes: 16 << 10}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(s.ln)
	}()
	return s, nil
}

func (s *adminServer) addr() string {
	if s.ln == nil {
		return ""
	}
	return s.ln.Addr().String()
}

func (s *adminServer) close() {
	if s.ln != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			_ = s.http.Close()
		}
	}
	<-s.done
}
