package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/web"
)

// waiting is what a node does that is no member of a cluster yet: it answers clients on lns, until end
// is called, that the process runs (/up, /livez), and to everything else that it is not ready. Why is for programs on
// its machine, as isotone doctor, and for the log: it has addresses of others.
type waiting struct {
	told   string
	reason atomic.Pointer[string]
	end    func()
}

// beginWaiting begins with a reason. The listeners outlive the waiting. The supervisor takes the process
// as started.
func beginWaiting(lns []net.Listener, reason string, log *slog.Logger) *waiting {
	w := &waiting{told: reason}
	w.reason.Store(&reason)
	w.end = serveWaiting(lns, &w.reason)
	tellReady(reason, log)
	return w
}

// tell changes the reason, and logs it with attrs if it is a new one.
func (w *waiting) tell(log *slog.Logger, reason, what, why string, attrs ...any) {
	if reason == w.told {
		return
	}
	w.told = reason
	w.reason.Store(&reason)
	log.Warn(what, append(attrs, "why", why)...)
}

// pause waits, and returns false if ctx ended.
func (w *waiting) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// waitingTimeout bounds reading a request, an answer, and the wait for those under way at the end.
const waitingTimeout = 2 * time.Second

// serveWaiting answers on lns until the returned function is called.
func serveWaiting(lns []net.Listener, reason *atomic.Pointer[string]) (stop func()) {
	server := &http.Server{
		ReadHeaderTimeout: waitingTimeout, ReadTimeout: waitingTimeout, WriteTimeout: waitingTimeout, IdleTimeout: waitingTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/up" || r.URL.Path == "/livez" {
				_, _ = w.Write([]byte("ok"))
				return
			}
			w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
			w.WriteHeader(http.StatusServiceUnavailable)
			told := notMember
			if web.IsFromThisMachine(r) {
				told = *reason.Load()
			}
			_, _ = w.Write(httpapi.Body(isotone.CodeNoLeader, told))
		}),
	}
	server.SetKeepAlivesEnabled(false)
	var ended sync.WaitGroup
	var lent []*net.TCPListener
	for _, ln := range lns {
		if tcp, ok := ln.(*net.TCPListener); ok {
			lent = append(lent, tcp)
			ended.Go(func() { _ = server.Serve(lentListener{tcp}) }) // returns ErrServerClosed
		}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitingTimeout)
		defer cancel()
		_ = server.Shutdown(ctx)
		ended.Wait()
		for _, tcp := range lent {
			_ = tcp.SetDeadline(time.Time{})
		}
	}
}

// lentListener is a listener that outlives the server it is lent to.
type lentListener struct{ *net.TCPListener }

// notMember is what clients are told.
const notMember = "not a member yet: the log of this node says why"

// Accept returns the next connection.
func (l lentListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	return &waitingConn{Conn: c}, nil
}

// waitingConn is a connection whose first bytes decide about it: a client of the Redis protocol gets an error of that, and the server sees the end.
type waitingConn struct {
	net.Conn
	isWeb bool
}

// Read reads from the connection.
func (c *waitingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isWeb || n == 0 {
		return n, err
	}
	if line, _, whole := bytes.Cut(p[:n], []byte("\n")); p[0] == '*' || whole && !bytes.Contains(line, []byte(" HTTP/")) {
		_, _ = io.WriteString(c.Conn, "-CLUSTERDOWN "+notMember+"\r\n")
		return 0, io.EOF
	}
	c.isWeb = true
	return n, err
}

// Close ends accepting, but leaves the listener open.
func (l lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
