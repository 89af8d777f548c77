package access

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// leases are the worker leases of a user or an address that this node has granted. Another
// leader counts anew, as leases are extended there.
type leases struct {
	mu    sync.Mutex
	until map[held]span
	// asked are requests without an answer.
	asked int64
}

// held identifies a lease.
type held struct {
	session uint64
	worker  int
}

// span is the time of a lease, in unix milliseconds. A lease that was given back is not extended, and its worker is not free
// before its end.
type span struct {
	start, end int64
	isOver     bool // given back
}

// take counts a request, and reports whether there may be another lease at the time now.
func (l *leases) take(most int64, session uint64, worker int, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	extends := false
	for h, s := range l.until {
		if s.end <= now {
			delete(l.until, h)
		} else if h.session == session && !s.isOver && (worker < 0 || h.worker == worker) {
			extends = true // without a certain worker it is the one that the session has
		}
	}
	if !extends && int64(len(l.until))+l.asked >= most {
		return false
	}
	l.asked++
	return true
}

// settle ends a request; end is 0 unless a lease was granted.
func (l *leases) settle(session uint64, worker int, start, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked--
	if end > 0 {
		if l.until == nil {
			l.until = map[held]span{}
		}
		l.until[held{session, worker}] = span{start: start, end: end}
	}
}

// release ends a lease at next, as the replicated state does: only one that began at start.
func (l *leases) release(session uint64, worker int, start, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := held{session, worker}
	if s, ok := l.until[at]; ok && s.start == start {
		l.until[at] = span{start: start, end: min(s.end, max(start+1, next)), isOver: true}
	}
}

// live returns how many leases there are at the time now, and forgets the others.
func (l *leases) live(now int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.until, func(_ held, s span) bool { return s.end <= now })
	return len(l.until)
}

// TakeWorker counts a request to lease a worker ID for a session of a client; worker is -1 unless
// a certain one is wanted. The caller calls settle exactly once, with what was granted, start and end in unix
// milliseconds, or with end 0. The error matches isotone.ErrQuotaExceeded.
func (s *Session) TakeWorker(session uint64, worker int) (settle func(worker int, start, end int64), err error) {
	u := s.leasing()
	if u == nil {
		return func(int, int64, int64) {}, nil
	}
	if most := u.limits.Load().Workers; !u.leases.take(most, session, worker, time.Now().UnixMilli()) {
		return nil, s.over(1, "worker leases", time.Minute)
	}
	return func(worker int, start, end int64) { u.leases.settle(session, worker, start, end) }, nil
}

// GiveBackWorker ends early, at next, the lease that began at start, both in unix milliseconds. The lease counts until then.
func (s *Session) GiveBackWorker(session uint64, worker int, start, next int64) {
	if u := s.leasing(); u != nil {
		u.leases.release(session, worker, start, next)
	}
}

// loopback stands for all loopback addresses: a program on this machine can use any of them.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// leasing returns the usage that leases count for; nil: unlimited. All clients on this machine
// without credentials count together.
func (s *Session) leasing() *usage {
	if s.control == nil {
		return nil
	}
	s.refresh()
	u := s.address
	switch {
	case s.user.name != "":
		u = s.user.usage
	case s.addr.IsLoopback():
		u = s.control.addresses.find(loopback)
	}
	if u == nil || u.limits.Load().Workers == 0 {
		return nil
	}
	return u
}
