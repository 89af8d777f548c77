package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/web"
	hostlisten "github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/operator"
)

// Limits of an admin port, which operators and their monitoring use.
const (
	// adminConnectionsMax is some Prometheus servers, probes, and people. Of those beyond it the one is closed that has waited
	// longest for a request, or the new one if none does.
	adminConnectionsMax = 64
	// adminShare is how many of them one address has at most.
	adminShare = adminConnectionsMax / 2
	// adminHeaderTimeout bounds reading the head of a request.
	adminHeaderTimeout = 2 * time.Second
	// adminHeaderBytesMax is as on the client port.
	adminHeaderBytesMax = 16 << 10
	// adminTimeout bounds reading a request, and the wait for the next one.
	adminTimeout = 10 * time.Second
	// profileTimeMax bounds how long a profile is taken. It is as long as its request says, and
	// net/http/pprof itself has no bound.
	profileTimeMax = time.Minute
	// adminWriteTimeout bounds an answer, profiles included.
	adminWriteTimeout = 2 * profileTimeMax
)

// adminServer serves operators on a port of their own. Nil serves nothing.
type adminServer struct {
	ln   net.Listener
	http http.Server
	done chan struct{} // closed when the server has ended
}

// listenAdmin listens on addr; "" disables the port, and the listener is nil. setting is its
// name in errors.
func listenAdmin(setting, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return ln, nil
}

// startAdmin serves h on ln, which it owns from now on. Without ln it returns nil.
func startAdmin(ln net.Listener, h http.Handler, log *slog.Logger) *adminServer {
	if ln == nil {
		return nil
	}
	// net/http itself says nothing of a failure to accept, but at debug level, and that each time.
	bounded := hostlisten.NewBounded(hostlisten.NewPatient(ln, log), adminConnectionsMax, adminShare)
	s := &adminServer{ln: ln, done: make(chan struct{})}
	s.http = http.Server{
		Handler: withoutUnreadBody(h), ReadHeaderTimeout: adminHeaderTimeout, ReadTimeout: adminTimeout, WriteTimeout: adminWriteTimeout, IdleTimeout: adminTimeout,
		MaxHeaderBytes: adminHeaderBytesMax, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ConnState: bounded.Follow,
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin port is not served any more", "addr", s.addr(), "err", err)
		}
	}()
	return s
}

// withoutUnreadBody answers with h, and does not wait for a body that h has left unread: a client that sends none would keep its connection.
func withoutUnreadBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// addr returns the address that is served, or "".
func (s *adminServer) addr() string {
	if s == nil {
		return ""
	}
	return s.ln.Addr().String()
}

// close ends the server; requests under way have a second to finish.
func (s *adminServer) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// nodeAdmin serves what the admin port of a node has: /metrics, the profiles of the process, and
// what the client port has for operators and probes.
// Rights are as on the client port.
func nodeAdmin(users *access.Control, metrics, client http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guarded(users, metrics)) // also when the client port refuses requests as overloaded
	for _, path := range append(healthPaths, "/upgrade", "/admin/") {
		mux.Handle(path, client)
	}
	profiles := http.NewServeMux()
	addProfiles(profiles)
	mux.Handle("/debug/", guarded(users, profiles))
	return mux
}

// guarded serves h to those who may ask for the path.
func guarded(users *access.Control, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := web.Authorize(users, r); err != nil {
			web.Fail(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// nodeMetrics serves what the metrics port of a node has, without credentials: /metrics and
// health checks.
func nodeMetrics(metrics, client http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	for _, path := range healthPaths {
		mux.Handle(path, client)
	}
	return mux
}

// healthPaths are what probes ask.
var healthPaths = []string{"/up", "/ready", "/ready/", "/livez", "/readyz"}

// startOperator serves operators on the Unix socket in dir, for which the process must have the directory's lock. A file system
// without sockets is no reason not to serve: then it returns nil.
func startOperator(dir string, admin, client http.Handler, log *slog.Logger) *adminServer {
	path := filepath.Join(dir, operator.SocketName)
	if info, err := os.Stat(dir); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 {
		log.Warn("everybody on this machine may write to the data directory, and so put other files and another socket there; set its permissions to 0700", "path", dir)
	}
	ln, err := hostlisten.Unix(path)
	if err != nil {
		log.Warn("operators of this machine are not served without credentials: the Unix socket cannot be made", "path", path, "err", err)
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", admin)
	mux.Handle("/debug/", admin)
	mux.Handle("/", client)
	return startAdmin(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(web.WithOperator(r.Context(), operator.SocketName)))
	}), log)
}

// programName answers with the name of this program. What net/http/pprof answers has its arguments
// as well, which may have passwords, as in LIVE.
func programName(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(os.Args[0]))
}

// addProfiles adds the profiles of this process to mux, below /debug/pprof/.
func addProfiles(mux *http.ServeMux) {
	for pattern, profile := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": programName, "GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol": pprof.Symbol, "POST /debug/pprof/symbol": pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if text := r.URL.Query().Get("seconds"); text != "" {
				if seconds, err := strconv.ParseFloat(text, 64); err != nil || !(seconds >= 0 && seconds <= profileTimeMax.Seconds()) {
					w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
					w.WriteHeader(http.StatusBadRequest)
					_, _ = w.Write(httpapi.Body(isotone.CodeInvalidArgument, fmt.Sprintf("seconds: want a number from 0 to %g", profileTimeMax.Seconds())))
					return
				}
			}
			profile(w, r)
		})
	}
}
