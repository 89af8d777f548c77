package grpc

import (
	"context"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
)

const (
	// watchSlice is for how long the core has a watch at most: it cannot be taken back when the client has gone.
	watchSlice = time.Second
	// watchInterval is the shortest time between two looks of a Watch.
	watchInterval = 20 * time.Millisecond
)

// sessionView is what Locks or Frontiers tell of a lock or group.
type sessionView struct {
	role access.Roles
	// of returns the first look at what has that name, next the one that waits for something else than seen.
	of   func(name string) *front.SessionWatch
	next func(seen *front.SessionWatch) *front.SessionWatch
	// isNew reports whether seen is what was waited for. appendTo appends it as a message.
	isNew    func(seen *front.SessionWatch) bool
	appendTo func(b []byte, seen *front.SessionWatch) []byte
}

var lockView = sessionView{
	role: access.Locks,
	of:   func(name string) *front.SessionWatch { return &front.SessionWatch{Lock: name} },
	next: func(seen *front.SessionWatch) *front.SessionWatch {
		return &front.SessionWatch{Lock: seen.Lock, After: tokenOf(seen), Wait: watchSlice}
	},
	isNew:    func(seen *front.SessionWatch) bool { return tokenOf(seen) != seen.After },
	appendTo: func(b []byte, seen *front.SessionWatch) []byte { return appendHolder(b, seen.Holders) },
}

// tokenOf returns the token of who holds a lock, 0 for nobody.
func tokenOf(seen *front.SessionWatch) isotone.Timestamp64 {
	if len(seen.Holders) == 0 {
		return 0
	}
	return seen.Holders[0].Token
}

var frontierView = sessionView{
	role: access.Frontier,
	of:   func(name string) *front.SessionWatch { return &front.SessionWatch{Group: name} },
	next: func(seen *front.SessionWatch) *front.SessionWatch {
		return &front.SessionWatch{Group: seen.Group, At: front.Above(seen.Frontier), Wait: watchSlice}
	},
	isNew:    func(seen *front.SessionWatch) bool { return !seen.Frontier.Before(seen.At) },
	appendTo: func(b []byte, seen *front.SessionWatch) []byte { return appendStamp(b, 1, seen.Frontier) },
}

// get is Get of a service.
func (v *sessionView) get(c *call, request, b []byte) ([]byte, error) {
	w, err := v.parse(c, request)
	if err == nil {
		err = c.look(c.ctx, w)
	}
	if err != nil {
		return b, err
	}
	return v.appendTo(b, w), nil
}

// watch is Watch of a service.
func (v *sessionView) watch(c *call) error {
	_ = c.control.SetReadDeadline(time.Now().Add(c.server.cfg.RequestTimeout))
	request, err := c.in.only()
	if err != nil {
		return err
	}
	w, err := v.parse(c, request)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(c.ctx)
	defer stop(nil)
	defer c.session.Watch(v.role, func() { stop(errLostRole) })()
	for first := true; ; first = false {
		if err := c.look(ctx, w); err != nil {
			return err
		}
		if first || v.isNew(w) {
			if err := c.send(EndFrame(v.appendTo(BeginFrame(nil), w), 0)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(watchInterval):
		case <-ctx.Done():
		}
		w = v.next(w)
	}
}

// parse reads a request, which has nothing but a name.
func (v *sessionView) parse(c *call, request []byte) (*front.SessionWatch, error) {
	name, err := parseText(request)
	switch {
	case err != nil:
	case c.server.cfg.Sessions == nil:
		err = errNoSessions
	case name == "":
		err = isotone.Errorf(isotone.CodeInvalidArgument, "want the name of a lock or of a group, which is not empty")
	default:
		if err = c.session.RequireName(name); err == nil {
			err = c.session.Take(1, 0)
		}
	}
	return v.of(name), err
}

// look has the core asked once. After an error w may still be the core's.
func (c *call) look(ctx context.Context, w *front.SessionWatch) error {
	done, patience := make(chan struct{}), w.Wait+c.server.cfg.RequestTimeout
	w.Done = func(*front.SessionWatch) { close(done) }
	c.server.cfg.Sessions.WatchSessions(w)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return w.Err
	case <-ctx.Done():
		return endOf(context.Cause(ctx))
	case <-c.server.cfg.Stopping:
		return errLeaving
	case <-timer.C:
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer within %v", patience)
	}
}
