package access

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/isotone/isotone"
)

// auditEvery and auditBurst bound the lines about denied requests: a flood of them must not
// become a flood of lines. Those left out are counted in the next one.
const (
	auditEvery = time.Second
	auditBurst = 10
)

// audit logs what was denied.
type audit struct {
	log *slog.Logger
	now func() time.Duration

	mu     sync.Mutex
	since  time.Duration
	lines  int
	silent uint64
}

// denied logs that somebody lacked something: a role, a quota, or the right secret.
func (a *audit) denied(reason, name string, addr netip.Addr, what string) {
	a.mu.Lock()
	now := a.now()
	if now-a.since >= auditEvery {
		a.since, a.lines = now, 0
	}
	if a.lines >= auditBurst {
		a.silent++
		a.mu.Unlock()
		return
	}
	a.lines++
	silent := a.silent
	a.silent = 0
	a.mu.Unlock()
	attrs := []any{"reason", reason, "what", what, "client", clientText(addr)}
	if name != "" {
		attrs = append(attrs, "user", name)
	}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	a.log.Warn("audit: denied", attrs...)
}

// movedEvery bounds the lines of one user about moved time.
const movedEvery = time.Minute

// farAhead is how far ahead of the clock time has to be moved for that to be remembered, and for a warning if an operator has done it.
const farAhead = 2 * time.Second

// namesShown bounds the names in a line.
const namesShown = 20

// Move says who has moved time ahead of the clock, for all clients.
type Move struct {
	At       time.Time
	Operator bool // else a client, by the floor of a request
	// User has done it; a name in parentheses if none is known. Client is the address.
	User, Client string
	// To is the time that was reached, Ahead how far it was ahead of the wall clock of this node then.
	To    time.Time
	Ahead time.Duration
}

func (s *Session) move(to uint64, isOperator bool) Move {
	now, at := time.Now(), time.Unix(0, int64(to)).UTC()
	return Move{At: now.UTC(), Operator: isOperator, User: cmp.Or(s.Name(), anonymousName), Client: clientText(s.addr), To: at, Ahead: at.Sub(now)}
}

// Moved counts and logs that the floor of a request has moved time ahead of the clock.
func (s *Session) Moved(floor isotone.Timestamp) {
	if s.control == nil {
		return
	}
	c, m := s.control, s.move(floor.Time, false)
	if n, log := c.moved.count(m, c.cfg.Now()); log {
		c.cfg.Log.Warn("audit: a client has moved time ahead of the clock", "floor", floor.String(), "to", m.To, "ahead", m.Ahead.String(),
			"client", m.Client, "user", m.User, "times", n)
	}
}

// Raised logs that an operator has moved time from one unix nanosecond beyond another.
func (s *Session) Raised(from, to uint64) {
	if s.control == nil {
		return
	}
	m := s.move(to, true)
	s.control.moved.remember(m)
	s.raised("audit: an operator has moved time", m, "from", time.Unix(0, int64(from)).UTC())
}

// RaisedTimelines logs that an operator has moved the time of timelines ahead of the clock, beyond a unix nanosecond.
func (s *Session) RaisedTimelines(names []string, to uint64) {
	if s.control == nil {
		return
	}
	s.raised("audit: an operator has moved the time of timelines", s.move(to, true), "timelines", names[:min(len(names), namesShown)], "more", max(0, len(names)-namesShown))
}

// raised logs a move by an operator, as a warning if it was far ahead of the clock.
func (s *Session) raised(text string, m Move, attrs ...any) {
	level := slog.LevelInfo
	if m.Ahead > farAhead {
		level = slog.LevelWarn
	}
	s.control.cfg.Log.Log(context.Background(), level, text, append(attrs, "to", m.To, "ahead", m.Ahead.String(), "client", m.Client, "user", m.User)...)
}

// moved counts by user how often time was moved.
type moved struct {
	mu     sync.Mutex
	by     map[string]uint64
	logged map[string]time.Duration
	last   *Move
}

// remember keeps a move that was far ahead of the clock.
func (m *moved) remember(last Move) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last.Ahead > farAhead {
		m.last = &last
	}
}

// count counts a move, and reports whether it should be logged. Users beyond usersMax share one count.
func (m *moved) count(move Move, now time.Duration) (n uint64, log bool) {
	m.remember(move)
	name := move.User
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by, m.logged = map[string]uint64{}, map[string]time.Duration{}
	}
	if _, known := m.by[name]; !known && len(m.by) >= usersMax {
		name = othersName
	}
	m.by[name]++
	last, before := m.logged[name]
	if log = !before || now-last >= movedEvery; log {
		m.logged[name] = now
	}
	return m.by[name], log
}

// MovedTime returns how often each user has moved time ahead of the clock, since the start of the process.
func (c *Control) MovedTime() map[string]uint64 {
	c.moved.mu.Lock()
	defer c.moved.mu.Unlock()
	return maps.Clone(c.moved.by)
}

// LastMove returns the latest move of time far ahead of the clock, nil if this process has seen none. It does not change.
func (c *Control) LastMove() *Move {
	c.moved.mu.Lock()
	defer c.moved.mu.Unlock()
	return c.moved.last
}

// RefusedHere returns how many requests of operators came from loopback addresses without credentials and were refused, since
// the start of the process.
func (c *Control) RefusedHere() uint64 { return c.refusedHere.Load() }

// clientText returns an address for the log: that of a client without one is not known to the process.
func clientText(addr netip.Addr) string {
	if !addr.IsValid() {
		return "-"
	}
	return addr.String()
}

// Did logs an action of an operator: what was done, and the code of the answer.
func (s *Session) Did(action, code string) {
	if s.control == nil {
		return
	}
	attrs := []any{"action", action, "code", code, "client", clientText(s.addr)}
	if name := s.Name(); name != "" {
		attrs = append(attrs, "user", name)
	}
	s.control.cfg.Log.Info("audit: admin action", attrs...)
}
