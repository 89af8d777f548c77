package server

import (
	"encoding/json"
	"net/http"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/web"
)

// proxyAdmin has what the admin port of a proxy serves: on the client port every path belongs
// to the backends.
type proxyAdmin struct {
	metrics http.Handler
	status  func() any
	ready   func() string // why the proxy is not ready, or ""
	checks  func() []httpapi.Check
}

func (a *proxyAdmin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics)
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
	// The port has no access control, and may be open to monitoring; profiles are not for that.
	profiles := http.NewServeMux()
	addProfiles(profiles)
	mux.HandleFunc("/debug/", func(w http.ResponseWriter, r *http.Request) {
		if !web.IsFromThisMachine(r) {
			http.Error(w, "profiles are for programs on the machine of this proxy", http.StatusForbidden)
			return
		}
		profiles.ServeHTTP(w, r)
	})
	return mux
}
