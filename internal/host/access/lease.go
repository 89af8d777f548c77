package access

import (
	"maps"
	"sync"
	"time"
)

// leases are the worker leases of a user or an address that this node has granted. Another
// leader counts anew, as leases are extended there.
type leases struct {
	mu    sync.Mutex
	until map[held]int64 // the end in unix milliseconds
	// asked are requests without an answer.
	asked int64
}

// held identifies a lease.
type held struct {
	session uint64
	worker  int
}

// take counts a request, and reports whether there may be another lease at the time now.
func (l *leases) take(most int64, session uint64, worker int, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	extends := false
	for h, end := range l.until {
		if end <= now {
			delete(l.until, h)
		} else if h.session == session && (worker < 0 || h.worker == worker) {
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
func (l *leases) settle(session uint64, worker int, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked--
	if end > 0 {
		if l.until == nil {
			l.until = map[held]int64{}
		}
		l.until[held{session, worker}] = end
	}
}

func (l *leases) release(session uint64, worker int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, held{session, worker})
}

// live returns how many leases there are at the time now, and forgets the others.
func (l *leases) live(now int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.until, func(_ held, end int64) bool { return end <= now })
	return len(l.until)
}

// TakeWorker counts a request to lease a worker ID for a session of a client; worker is -1 unless
// a certain one is wanted. The caller calls settle exactly once, with what was granted, or with
// end 0. The error matches isotone.ErrQuotaExceeded.
func (s *Session) TakeWorker(session uint64, worker int) (settle func(worker int, end int64), err error) {
	u := s.leasing()
	if u == nil {
		return func(int, int64) {}, nil
	}
	if most := u.limits.Load().Workers; !u.leases.take(most, session, worker, time.Now().UnixMilli()) {
		return nil, s.over("worker leases", time.Minute)
	}
	return func(worker int, end int64) { u.leases.settle(session, worker, end) }, nil
}

// GiveBackWorker ends a lease before its time.
func (s *Session) GiveBackWorker(session uint64, worker int) {
	if u := s.leasing(); u != nil {
		u.leases.release(session, worker)
	}
}

// leasing returns the usage that leases count for; nil: unlimited.
func (s *Session) leasing() *usage {
	if s.control == nil {
		return nil
	}
	s.refresh()
	u := s.address
	if s.user.name != "" {
		u = s.user.usage
	}
	if u == nil || u.limits.Load().Workers == 0 {
		return nil
	}
	return u
}
