package access

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

// What a client address may waste. Each of these costs a node much more than a request on the fast
// path, and gives the client nothing. Clients that work never come near: one that is told 429
// waits, and a handshake ends.
const (
	// refusalsBurst is how many refused requests the standard servers answer an address one by
	// one: as many as one connection of HTTP/2 has at a time. A request that is taken back
	// before it was answered counts as one.
	refusalsBurst = 256
	// refusalsRate is how many a second they answer for good: a client that waits as long as it is
	// told asks again once a second.
	refusalsRate = 8
	// refusalsOwed is how many more count, so that a connection that is let in too early is paid
	// for: after a flood it takes 8 s until the next one is.
	refusalsOwed = 64
	// handshakesBurst is how many TLS handshakes of an address are under way at a time: more
	// than the largest pools of connections open at once.
	handshakesBurst = 128
	// handshakesRate is how many a second may fail for good.
	handshakesRate = 16
)

// budget is a number of things that are used up and come back with time: a bucket of its own
// depth.
type budget struct{ earned atomic.Int64 }

// spend uses one of burst, if there is one left at time now; one comes back every interval.
func (b *budget) spend(now, interval time.Duration, burst int64) bool {
	for {
		was := b.earned.Load()
		from := max(was, int64(now))
		if from-int64(now) > (burst-1)*int64(interval) {
			return false
		}
		if b.earned.CompareAndSwap(was, from+int64(interval)) {
			return true
		}
	}
}

// owe uses one of burst, even if there is none left, until most are used.
func (b *budget) owe(now, interval time.Duration, most int64) {
	owe(&b.earned, now, interval, time.Duration(most)*interval)
}

// owe adds cost to what was earned until most are ahead of now.
func owe(earned *atomic.Int64, now, cost, most time.Duration) {
	for {
		was := earned.Load()
		owed := min(max(was, int64(now))+int64(cost), int64(now+most))
		if owed <= was || earned.CompareAndSwap(was, owed) {
			return
		}
	}
}

// isUsedUp reports whether spend would fail.
func (b *budget) isUsedUp(now, interval time.Duration, burst int64) bool {
	return b.earned.Load()-int64(now) > (burst-1)*int64(interval)
}

// giveBack undoes spend.
func (b *budget) giveBack(interval time.Duration) { b.earned.Add(-int64(interval)) }

const (
	refusalInterval   = time.Second / refusalsRate
	handshakeInterval = time.Second / handshakesRate
)

// Refused counts a request that the standard servers have refused, or that was taken back. It
// reports whether the address has had too many lately; then the connection should end.
func (s *Session) Refused() (tooMany bool) {
	if s.control == nil || s.address == nil {
		return false
	}
	now := s.control.cfg.Now()
	tooMany = s.address.refusals.isUsedUp(now, refusalInterval, refusalsBurst)
	s.address.refusals.owe(now, refusalInterval, refusalsBurst+refusalsOwed)
	return tooMany
}

// Refusing returns an error, which matches isotone.ErrQuotaExceeded, if so many requests from addr
// were refused lately that the standard servers take no new connections from it. A nil Control
// refuses nobody.
func (c *Control) Refusing(addr netip.Addr) error {
	if c == nil {
		return nil
	}
	addr = addr.Unmap()
	if !c.addresses.find(addr).refusals.isUsedUp(c.cfg.Now(), refusalInterval, refusalsBurst) {
		return nil
	}
	c.audit.denied("quota", "", addr, "refused requests")
	return &isotone.Error{Code: isotone.CodeQuotaExceeded, Message: "too many requests from this address were refused", RetryAfter: refusalsOwed * refusalInterval}
}

// BeginHandshake counts a TLS handshake, and reports whether the address may have one more.
func (s *Session) BeginHandshake() bool {
	if s.control == nil || s.address == nil || s.address.handshakes.spend(s.control.cfg.Now(), handshakeInterval, handshakesBurst) {
		return true
	}
	s.control.audit.denied("quota", "", s.addr, "handshakes")
	return false
}

// HandshakeDone says that a handshake has succeeded, so that it does not count.
func (s *Session) HandshakeDone() {
	if s.control != nil {
		s.private = true
		s.address.handshakes.giveBack(handshakeInterval)
	}
}
