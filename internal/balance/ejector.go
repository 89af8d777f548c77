package balance

import "time"

// EjectorConfig says when backends are ejected. A field that is 0 or less has its
// default.
type EjectorConfig struct {
	// FailuresMax is how many failures in a row eject a backend. Default 5.
	FailuresMax int
	// Base is how long the first ejection lasts; each that follows soon lasts twice as
	// long as the one before. Default 5 s.
	Base time.Duration
	// Max bounds an ejection. Default 5 min.
	Max time.Duration
	// SharePercent bounds how many of all backends are ejected at a time; one always may
	// be, if there are two. Default 50: when more than half fail, the rest is
	// hardly able to take their load.
	SharePercent int
}

func (c EjectorConfig) withDefaults() EjectorConfig {
	if c.FailuresMax <= 0 {
		c.FailuresMax = 5
	}
	if c.Base <= 0 {
		c.Base = 5 * time.Second
	}
	if c.Max <= 0 {
		c.Max = 5 * time.Minute
	}
	c.Max = max(c.Max, c.Base)
	if c.SharePercent <= 0 {
		c.SharePercent = 50
	}
	return c
}

// Ejector watches what comes back from the backends of a [Set] and ejects those that
// fail again and again. Time is whatever runs evenly; it must not go back.
type Ejector struct {
	cfg     EjectorConfig
	set     *Set
	records []record
	ejected int
}

// record is what an ejector knows of one backend.
type record struct {
	failures int           // in a row
	level    uint          // of the latest ejection: it lasted Base << level
	out      bool          // ejected
	until    time.Duration // when it comes back, or came back
}

// NewEjector returns an ejector for the backends of s.
func NewEjector(s *Set, cfg EjectorConfig) *Ejector {
	return &Ejector{cfg: cfg.withDefaults(), set: s, records: make([]record, s.Len())}
}

// Report notes how a request has ended at a backend, and reports whether that has
// ejected it. What an ejected backend still answers to earlier requests does not count.
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

// outMax returns how many may be ejected at a time.
func (e *Ejector) outMax() int {
	if len(e.records) == 1 {
		return 0 // there is nothing to use instead
	}
	return max(1, len(e.records)*e.cfg.SharePercent/100)
}

// duration returns how long the next ejection of r lasts. A backend is forgiven one level
// for each Base that it has been in.
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

// Expire lets backends in again whose time is over. It costs a comparison while none is
// ejected. [Ejector.Report] does it, too; who chooses should call it before.
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
