package conformance

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/steady"
)

// This file has the cluster clocks of a stage: what nodes tell of them, and what a client may conclude.

// termClock is the cluster clock of a term. It shows real time, by the steady clock, so that what a client says of it can be judged.
type termClock struct {
	term  uint64
	shown uint64 // what it showed ...
	at    int64  // ... when the steady clock showed this
	fast  int64  // by how many millionths it is fast

	before, after, length uint64 // how far what nodes tell is from what it shows: earliest, latest, and limit

	told     bool
	earliest uint64 // the smallest that was told
	limit    uint64 // the largest that was told
}

// shows returns what the clock shows when the steady clock shows at.
func (t *termClock) shows(at int64) uint64 {
	passed := at - t.at
	return t.shown + uint64(passed+passed*t.fast/1_000_000)
}

// reading returns what a node tells now.
func (t *termClock) reading() interval.Reading {
	now := t.shows(steady.Exact())
	id, _ := isotone.ParseClusterID(clusterID)
	return interval.Reading{Cluster: uint64(id), Term: t.term, Earliest: now - t.before, Latest: now + t.after, Limit: now + t.length}
}

// clockState is what a stage knows of cluster clocks, and of clocks of clients. It is guarded by stage.mu.
type clockState struct {
	terms   []*termClock // the last one is that of the leader
	nonces  map[uint64]bool
	stamps  map[isotone.Timestamp]bool
	indexes map[uint64]string // of timestamps: the clock
	seen    []*seen
	// wrong is set while the cluster clock does what no clock may: nothing that a client says of it can be judged.
	wrong bool
}

// seen is what a call of a clock has returned.
type seen struct {
	call           *call
	term, earliest uint64
	last           isotone.Timestamp
}

func newClockState() clockState {
	c := clockState{nonces: map[uint64]bool{}, stamps: map[isotone.Timestamp]bool{}, indexes: map[uint64]string{}}
	c.terms = []*termClock{{term: 7, shown: 1795317567364593274, at: steady.Exact(), length: uint64(10 * time.Second)}}
	return c
}

// clock returns the cluster clock of the leader's term.
func (c *clockState) clock() *termClock { return c.terms[len(c.terms)-1] }

// nextTerm begins another term, whose clock is ahead of that of the last one.
func (s *stage) nextTerm(ahead time.Duration) {
	s.change("another term", func() {
		next, now := *s.clock(), steady.Exact()
		next.term, next.shown, next.at, next.told = next.term+1, next.shows(now)+uint64(ahead), now, false
		s.terms = append(s.terms, &next)
	})
}

// tellClock answers INTERVAL.
func (s *stage) tellClock(r *request) []byte {
	if s.leader < 0 {
		return faultLine("CLUSTERDOWN no reading of the cluster clock is valid")
	}
	return s.tell(r, s.clock())
}

// tell answers INTERVAL with a reading of a clock, which may be changed to another true one.
func (s *stage) tell(r *request, t *termClock, change ...func(*interval.Reading)) []byte {
	told := t.reading()
	for _, f := range change {
		f(&told)
	}
	if !t.told || told.Earliest < t.earliest {
		t.told, t.earliest = true, told.Earliest
	}
	t.limit = max(t.limit, told.Limit)
	return readingOf(told, r.nonce())
}

// readingOf returns the answer with a reading.
func readingOf(r interval.Reading, nonce uint64) []byte {
	return append(r.Append([]byte("$48\r\n"), nonce), "\r\n"...)
}

// nonce returns that of a question, 0 if it has none.
func (r *request) nonce() uint64 {
	if len(r.args) != 2 {
		return 0
	}
	nonce, _ := strconv.ParseUint(r.args[1], 10, 64)
	return nonce
}

// examineClock checks what a clock of a client sends.
func (s *stage) examineClock(r *request) {
	c := r.conn
	c.asksOther = c.asksOther || r.needsCluster()
	if r.name == "INTERVAL" {
		c.asksClock = true
		switch nonce := r.nonce(); {
		case len(r.args) != 2 || strconv.FormatUint(nonce, 10) != r.args[1]:
			s.fault("C63", "%s got %s, want a nonce of 64 bits", c.name, r)
		case s.nonces[nonce]:
			s.fault("C63", "%s got %s, whose nonce is not random: it came before", c.name, r)
		default:
			s.nonces[nonce] = true
		}
	}
	if c.asksClock && c.asksOther {
		s.fault("C63", "%s got %s: questions of a clock have connections of their own", c.name, r)
	}
}

// gotFromClock checks what a call of a clock returns.
func (s *stage) gotFromClock(c *call) {
	got := &seen{call: c}
	switch {
	case s.wrong:
		return
	case c.do == "interval":
		s.gotInterval(c, got)
	case c.do == "stamp":
		s.gotClockStamps(c, got)
	case c.do == "wait" || c.do == "past" && c.reply.OK.Past:
		if least := s.lowest(c.endedOn); c.timestamp.Time >= least {
			s.fault("C71", "%s: %v is past, but the earlier bound is %d at most", c, c.timestamp, least)
		}
	}
	s.seen = append(s.seen, got)
}

// lowest returns what the earlier bound of a client can be at most.
func (s *stage) lowest(at int64) (most uint64) {
	for _, t := range s.terms {
		if t.told {
			most = max(most, t.shows(at)-t.before)
		}
	}
	return most
}

// gotInterval checks bounds: at an instant of the call, the cluster clock was within them.
func (s *stage) gotInterval(c *call, got *seen) {
	earliest, err1 := strconv.ParseUint(c.reply.OK.Earliest, 10, 64)
	latest, err2 := strconv.ParseUint(c.reply.OK.Latest, 10, 64)
	term, err3 := strconv.ParseUint(c.reply.OK.Term, 10, 64)
	if err := cmp.Or(err1, err2, err3); err != nil {
		s.fault("driver", "%s: %v", c, err)
		return
	}
	got.term, got.earliest = term, earliest
	first := s.terms[0].term
	if term < first || term > s.clock().term || !s.terms[term-first].told {
		s.fault("C64", "%s: a clock of term %d, which no node has told of", c, term)
		return
	}
	t := s.terms[term-first]
	switch {
	case earliest > t.shows(c.endedOn):
		s.fault("C64", "%s: the earlier bound, %d, is above what the cluster clock showed in the end, %d", c, earliest, t.shows(c.endedOn))
	case latest < t.shows(c.begunOn):
		s.fault("C64", "%s: the later bound, %d, is below what the cluster clock showed when it began, %d", c, latest, t.shows(c.begunOn))
	case earliest > latest || earliest < t.earliest:
		s.fault("C64", "%s: the bounds are %d and %d, and the smallest that was told is %d", c, earliest, latest, t.earliest)
	case latest > t.limit:
		s.fault("C66", "%s: the later bound, %d, is above the limit, %d", c, latest, t.limit)
	}
	for _, other := range s.seen {
		if other.call.clock == c.clock && other.call.end < c.begun && (term < other.term || term == other.term && earliest < other.earliest) {
			s.fault("C64", "%s: term %d from %d, after %s had term %d from %d", c, term, earliest, other.call, other.term, other.earliest)
		}
	}
}

// gotClockStamps checks the timestamps that a clock made.
func (s *stage) gotClockStamps(c *call, got *seen) {
	if uint64(len(c.reply.OK.Timestamps)) != c.count {
		s.fault("C70", "%s: %d timestamps, want %d", c, len(c.reply.OK.Timestamps), c.count)
		return
	}
	var first, last isotone.Timestamp
	for i, text := range c.reply.OK.Timestamps {
		ts, err := isotone.ParseTimestamp(text)
		switch owner := s.indexes[ts.Index]; {
		case err != nil:
			s.fault("driver", "%s: %v", c, err)
			return
		case ts.Index < interval.IndexMin || owner != "" && owner != c.clock:
			s.fault("C70", "%s: %v: want an index of its own generator, of 2^63 and random bits", c, ts)
		case i > 0 && (ts.Time != last.Time+1 || ts.Index != last.Index):
			s.fault("C70", "%s: %v after %v: want consecutive times", c, ts, last)
		case s.stamps[ts]:
			s.fault("C70", "%s: %v was made before", c, ts)
		}
		s.stamps[ts], s.indexes[ts.Index] = true, c.clock
		if last = ts; i == 0 {
			first = ts
		}
	}
	got.last = last
	s.checkClockStamps(c, first, last)
}

// checkClockStamps checks the times of a call, and their order.
func (s *stage) checkClockStamps(c *call, first, last isotone.Timestamp) {
	least, limit := uint64(math.MaxUint64), uint64(0)
	for _, t := range s.terms {
		if t.told {
			least, limit = min(least, t.shows(c.begunOn)), max(limit, t.limit)
		}
	}
	switch {
	case first.Time < least:
		s.fault("C70", "%s: %v is below what the cluster clock showed when it began, %d", c, first, least)
	case last.Time > limit:
		s.fault("C66", "%s: %v is above the limit, %d", c, last, limit)
	}
	for _, other := range s.seen {
		if other.call.clock == c.clock && other.call.end < c.begun && first.Compare(other.last) <= 0 {
			s.fault("C70", "%s: %v, after %s had got %v", c, first, other.call, other.last)
		}
	}
}
