package main

import (
	"encoding/json"
	"net/http"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// proxyAdmin has what the admin port of a proxy serves: on the client port every path belongs
// to the backends.
type proxyAdmin struct {
	metrics http.Handler
	status  func() any
	ready   func() string // why the proxy is not ready, or ""
}

func (a *proxyAdmin) handler() http.Handler {
	mux := adminMux(a.metrics, func() *isotone.Error {
		if why := a.ready(); why != "" {
			return isotone.Errorf(isotone.CodeOverloaded, "%s", why)
		}
		return nil
	})
	mux.HandleFunc("GET /proxy/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
		w.Header().Set("Cache-Control", httpapi.CacheControl)
		_ = json.NewEncoder(w).Encode(a.status())
	})
	return mux
}
