package balance

import (
	"cmp"
	"time"
)

// EjectorConfig says when backends are ejected. A field that is 0 or less means its default.
type EjectorConfig struct {
	// FailuresMax is how many consecutive failures eject a backend. Default 5.
	FailuresMax int
	// Base is how long the first ejection lasts; each that follows soon lasts twice as long as
	// the one before. Default 5 s.
	Base time.Duration
	// Max bounds the duration of an ejection. Default 5 min.
	Max time.Duration
	// SharePercent bounds the share of backends that are ejected at a time; one of two or more
	// always may be. Default 50: less than half could hardly carry the load of all.
	SharePercent int
}

func (c EjectorConfig) withDefaults() EjectorConfig {
	c.FailuresMax = cmp.Or(max(c.FailuresMax, 0), 5)
	c.Base = cmp.Or(max(c.Base, 0), 5*time.Second)
	c.Max = max(cmp.Or(max(c.Max, 0), 5*time.Minute), c.Base)
	c.SharePercent = cmp.Or(max(c.SharePercent, 0), 50)
	return c
}

// Ejector ejects the backends of a [Set] that keep failing. Times are of a monotonic clock.
type Ejector struct {
	cfg     EjectorConfig
	set     *Set
	records []record
	ejected int
}

// record is the state of one backend.
type record struct {
	failures int           // consecutive
	level    uint          // of the latest ejection: it lasted Base << level
	out      bool          // ejected
	until    time.Duration // when it comes back, or came back
}

// NewEjector returns an ejector for the backends of s.
func NewEjector(s *Set, cfg EjectorConfig) *Ejector {
	return &Ejector{cfg: cfg.withDefaults(), set: s, records: make([]record, s.Len())}
}

// Report takes the outcome of a request at a backend, and reports whether that ejects it. An
// ejected backend's answers to earlier requests do not count.
func (e *Ejector) Report(now time.Duration, backend int, ok bool) (ejected bool) {
	e.Expire(now)
	r := &e.records[backend]
	switch {
	case r.out:
		return false
	case ok:
		r.failures = 0
		return false
	}
	r.failures++
	if r.failures < e.cfg.FailuresMax || e.ejected >= e.outMax() {
		return false
	}
	lasts := e.duration(r, now)
	r.failures, r.out, r.until = 0, true, now+lasts
	e.ejected++
	e.set.SetEjected(backend, true)
	return true
}

// outMax returns how many backends may be ejected at a time.
func (e *Ejector) outMax() int {
	if len(e.records) == 1 {
		return 0 // there is no other backend
	}
	return max(1, len(e.records)*e.cfg.SharePercent/100)
}

// duration returns how long the next ejection of r lasts. The level falls by one for each Base
// since the latest ejection.
func (e *Ejector) duration(r *record, now time.Duration) time.Duration {
	if r.until > 0 {
		r.level++
		r.level -= min(r.level, uint((now-r.until)/e.cfg.Base))
	}
	lasts := e.cfg.Base
	for range r.level {
		if lasts *= 2; lasts >= e.cfg.Max {
			return e.cfg.Max
		}
	}
	return lasts
}

// Expire ends the ejections whose time is over. While none is ejected it costs a comparison.
// [Ejector.Report] calls it; the caller should call it before it chooses.
func (e *Ejector) Expire(now time.Duration) {
	if e.ejected == 0 {
		return
	}
	for i := range e.records {
		if r := &e.records[i]; r.out && now >= r.until {
			r.out = false
			e.ejected--
			e.set.SetEjected(i, false)
		}
	}
}
