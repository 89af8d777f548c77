package access

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
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
	attrs := []any{"reason", reason, "what", what, "client", addr.String()}
	if name != "" {
		attrs = append(attrs, "user", name)
	}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	a.log.Warn("audit: denied", attrs...)
}

// Did logs an action of an operator: what was done, and the code of the answer.
func (s *Session) Did(action, code string) {
	if s.control == nil {
		return
	}
	attrs := []any{"action", action, "code", code, "client", s.addr.String()}
	if name := s.Name(); name != "" {
		attrs = append(attrs, "user", name)
	}
	s.control.cfg.Log.Info("audit: admin action", attrs...)
}
