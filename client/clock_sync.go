package client

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/search"
)

const (
	// syncInitial is the time between two questions while the length of limits is not known yet, syncMin
	// and syncMax bound it afterwards. At syncMax bounds widen by a quarter of a millisecond.
	syncInitial = 25 * time.Millisecond
	syncMin     = 5 * time.Millisecond
	syncMax     = 250 * time.Millisecond
	// syncsPerLimit is how many questions are asked within the length of a limit.
	syncsPerLimit = 4
	// probeInterval is how often another node than the usual one is asked, to find out whether it
	// gives narrower bounds, and the leader for the members.
	probeInterval = 10 * time.Second
	// strayMax bounds the answers to other questions before the one to the own.
	strayMax = 16
)

// A syncer keeps the estimate of a [Clock] in sync. It is one goroutine, and like the router it never
// waits for a node: each question has a goroutine of its own, so a dead or slow node does not delay
// others. It asks the node whose readings give the narrowest bounds. When that fails, has no leader or
// is silent for longer than usual, it asks all nodes at once, and takes what comes first.
type syncer struct {
	k        *Clock
	work     sync.WaitGroup     // questions
	sources  map[string]*source // by address, at most search.MembersMax and those that are asked
	usual    *source            // the one to ask; nil while none is good
	estimate interval.Estimate
	rate     interval.Rate
	stats    ClockStats
	refused  *isotone.Error // all nodes refuse this client

	period    time.Duration
	due       time.Time // of the next question
	asked     time.Time // the latest question
	probe     time.Time // of the next question to another node
	searching bool      // the usual node does not answer, so all are asked
	rounds    int       // of the search
	begun     time.Time // the search
	searchDue time.Time // the next one
}

// source is a node that is asked for readings.
type source struct {
	addr     string
	line     *inquiry // the idle connection, if there is one
	asking   bool     // a question is under way
	asked    time.Time
	took     estimate      // round trips
	width    time.Duration // smoothed, of the bounds that readings give
	failures int           // in a row
	retry    time.Time     // no question before it
	why      *isotone.Error
	isGone   bool // not a member any more
}

// sounding is a question to a node, and its outcome.
type sounding struct {
	source         *source
	line           *inquiry // nil if there is no usable connection
	sent, received interval.Instant
	reading        interval.Reading
	took           time.Duration
	err            error
}

// run keeps the clock in sync until it is closed.
func (k *Clock) run() {
	defer close(k.ended)
	s := &syncer{k: k, sources: map[string]*source{}, period: syncInitial, searching: true, begun: time.Now()}
	s.probe = s.begun.Add(k.probe)
	s.work.Go(k.release)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for k.ctx.Err() == nil {
		select {
		case <-k.ctx.Done():
		case outcome := <-k.soundings:
			s.take(outcome)
		case <-k.wanted:
			s.hurry()
		case <-timer.C:
		}
		timer.Reset(s.step(time.Now()))
	}
	s.work.Wait()
	for _, src := range s.sources {
		src.line.close()
	}
	close(k.known.Swap(&knowledge{why: ErrClosed, stats: s.stats}).next)
}

// hurry has the next question asked at once, because a call waits for it.
func (s *syncer) hurry() {
	if soon := s.asked.Add(syncMin); soon.Before(s.due) {
		s.due = soon
	}
}

// step asks what is due. It returns the wait until the next step.
func (s *syncer) step(now time.Time) time.Duration {
	if s.k.ctx.Err() != nil {
		return 0
	}
	s.follow()
	if !now.Before(s.probe) {
		s.probe = now.Add(s.k.probe)
		s.explore()
	}
	next := s.probe.Sub(now)
	if !s.searching {
		if !now.Before(s.due) && !s.usual.asking {
			s.due = now.Add(s.period)
			s.ask(s.usual, now)
		}
		next = min(next, s.due.Sub(now))
		if s.usual.asking {
			next = s.usual.asked.Add(s.usual.patience(s.period)).Sub(now)
			if next <= 0 {
				s.k.trouble.note(s.usual.addr, errSilent)
				s.search()
			}
		}
	}
	if s.searching {
		next = s.askAll(now)
	}
	return max(next, time.Millisecond/8)
}

var errSilent = errors.New("silent for longer than usual, when asked for the cluster clock")

// patience returns how long an answer may take.
func (src *source) patience(period time.Duration) time.Duration {
	if src.took.mean == 0 {
		return timeoutInitial
	}
	return min(max(src.took.mean+4*src.took.deviation, period), timeoutMax)
}

// follow makes the sources those that the client's router knows.
func (s *syncer) follow() {
	members := s.k.c.seen.Load().Members
	for _, addr := range members {
		if s.sources[addr] == nil {
			s.sources[addr] = &source{addr: addr}
		}
	}
	maps.DeleteFunc(s.sources, func(addr string, src *source) bool {
		if src.isGone = !slices.Contains(members, addr); !src.isGone {
			return false
		}
		if src == s.usual {
			s.search()
		}
		if !src.asking {
			src.line.close()
		}
		return !src.asking
	})
}

// search begins a search, unless there is one.
func (s *syncer) search() {
	s.usual = nil
	if s.searching {
		return
	}
	s.searching, s.rounds, s.begun, s.searchDue = true, 0, time.Now(), time.Time{}
	s.k.c.post(func(r *router) { // the members may have changed, the leader in any case
		if !r.search.Suspects() {
			r.suspect(r.search.Leader())
		}
	})
}

// askAll asks all sources, unless the pause since the last time is not over, and returns the rest of
// the pause.
func (s *syncer) askAll(now time.Time) time.Duration {
	if rest := s.searchDue.Sub(now); rest > 0 {
		return rest
	}
	for _, src := range s.sources {
		if !src.asking && !src.isGone && !now.Before(src.retry) {
			s.ask(src, now)
		}
	}
	pause := backoffTo(s.rounds, s.pauseMax(now))
	s.rounds++
	s.searchDue = now.Add(pause)
	return pause
}

// pauseMax bounds the pauses of the search. Most elections end within search.Eager.
func (s *syncer) pauseMax(now time.Time) time.Duration {
	if s.searching && now.Sub(s.begun) < search.Eager {
		return search.EagerPauseMax
	}
	return search.PauseMax
}

// explore asks a node other than the usual one, and has the router ask the leader for the members.
func (s *syncer) explore() {
	s.k.c.post(func(r *router) {
		if leader := r.search.Leader(); leader != "" {
			r.forget()
			r.question(leader)
		}
	})
	if s.searching {
		return
	}
	now := time.Now()
	for _, src := range s.sources { // in a random order
		if src != s.usual && !src.asking && !src.isGone && !now.Before(src.retry) {
			s.ask(src, now)
			return
		}
	}
}

// ask asks a source, in a goroutine.
func (s *syncer) ask(src *source, now time.Time) {
	line := src.line
	src.asking, src.asked, src.line = true, now, nil
	s.asked = now
	s.work.Go(func() { s.k.ask(src, line) })
}

// take takes in the outcome of a question.
func (s *syncer) take(o sounding) {
	src, now := o.source, time.Now()
	src.asking, src.line = false, o.line
	if o.err != nil {
		s.failed(src, o.err, now)
		return
	}
	src.failures, src.retry, src.why = 0, time.Time{}, nil
	src.took.add(o.took)
	s.rate.Take(o.received, o.reading.Term, s.estimate.Take(o.sent, o.received, o.reading))
	s.refused = nil
	s.stats.Readings++
	s.stats.Node, s.stats.RoundTrip = src.addr, o.took
	width := o.took + time.Duration(o.reading.Latest-o.reading.Earliest)
	if src.width == 0 {
		src.width = width
	}
	src.width += (width - src.width) / 8
	s.publish()
	if _, good := s.estimate.Bounds(o.received); good && !src.isGone && o.reading.Term == s.estimate.Term() {
		length := time.Duration(o.reading.Limit - min(o.reading.Latest, o.reading.Limit))
		s.period = min(max(length/syncsPerLimit, syncMin), syncMax)
		s.prefer(src, now)
		return
	}
	src.retry = now.Add(syncMin) // its reading is no use: it is too old, or too far away
	if src == s.usual {
		s.search()
	}
}

// prefer makes a source with a good reading the usual one, unless the other is about as good, and ends
// the search.
func (s *syncer) prefer(src *source, now time.Time) {
	s.k.trouble.clear()
	if s.usual == nil || src.width < s.usual.width-s.usual.width/4 {
		s.usual = src
	}
	if s.searching {
		s.searching = false
		s.due = src.asked.Add(s.period)
		if wait := now.Add(syncMin); s.due.Before(wait) {
			s.due = wait
		}
	}
	if src != s.usual {
		src.line.close()
		src.line = nil
	}
	for _, other := range s.sources {
		if other != s.usual && other.line != nil {
			other.line.close()
			other.line = nil
		}
	}
}

// failed handles the failure of a question.
func (s *syncer) failed(src *source, err error, now time.Time) {
	if s.k.ctx.Err() != nil {
		return
	}
	s.k.failed.Add(1)
	s.k.trouble.note(src.addr, err)
	if src == s.usual {
		s.search()
	}
	var refusal *isotone.Error
	pause := backoffTo(src.failures, s.pauseMax(now))
	src.why = nil
	switch {
	case !errors.As(err, &refusal):
	case refusal.Code == isotone.CodeQuotaExceeded:
		pause = quotaPause(refusal, src.failures)
	case !repeatable(refusal.Code):
		src.why, pause = refusal, backoffTo(src.failures, search.RefusedPauseMax)
	}
	src.retry = now.Add(pause)
	src.failures++
	if why := s.refusal(); s.usual == nil && (why == nil) != (s.refused == nil) {
		s.refused = why
		s.publish()
	}
}

// refusal returns the refusal of one of the sources if all have refused, else nil.
func (s *syncer) refusal() (why *isotone.Error) {
	for _, src := range s.sources {
		if src.why == nil {
			return nil
		}
		why = src.why
	}
	return why
}

// publish makes the state visible to all calls.
func (s *syncer) publish() {
	n := &knowledge{estimate: s.estimate, stats: s.stats, next: make(chan struct{})}
	switch {
	case !s.rate.OK():
		n.estimate, n.why = interval.Estimate{}, errBadRate
	case s.refused != nil:
		n.why = s.refused
	}
	close(s.k.known.Swap(n).next)
}
