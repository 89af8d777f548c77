package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/steady"
)

// reader is a cluster clock of the client under test.
type reader struct {
	c    *client
	name string
	made *call
}

// clock begins to make a clock.
func (c *client) clock(change ...arg) *reader {
	c.s.mu.Lock()
	c.s.names++
	k := &reader{c: c, name: fmt.Sprintf("%s-%d", c.s.name, c.s.names)}
	c.s.mu.Unlock()
	k.made = k.do("clock", append([]arg{func(cmd *Command) { cmd.Client = c.name }}, change...)...)
	return k
}

func (k *reader) do(do string, change ...arg) *call {
	cmd := Command{Do: do, Clock: k.name, DeadlineMS: callDeadline.Milliseconds()}
	for _, f := range change {
		f(&cmd)
	}
	return k.c.s.begin(cmd)
}

func of(t isotone.Timestamp) arg { return func(c *Command) { c.Timestamp = t.String() } }
func count(n uint64) arg         { return func(c *Command) { c.Count = &n } }

// stamp makes timestamps, and returns the last one.
func (k *reader) stamp(rule string, n uint64) isotone.Timestamp {
	list := k.do("stamp", count(n)).want(rule).Timestamps
	if len(list) == 0 {
		return isotone.Timestamp{}
	}
	ts, _ := isotone.ParseTimestamp(list[len(list)-1])
	return ts
}

// wait waits until a timestamp is past.
func (k *reader) wait(rule string, ts isotone.Timestamp) { k.do("wait", of(ts)).want(rule) }

// until reads the interval until the outcome is right.
func (k *reader) until(what string, done func(Reply) bool) {
	for began := time.Now(); ; k.c.s.breathe() {
		if done(k.do("interval", within(short)).wait()) {
			return
		}
		if time.Since(began) > k.c.s.patience {
			panic(broken{fmt.Sprintf("waited %v in vain for %s", k.c.s.patience, what)})
		}
	}
}

// fails reads the interval until it fails with a code.
func (k *reader) fails(code string) {
	k.until("the error "+code, func(r Reply) bool { return r.OK == nil && r.Error == code })
}

// limitPasses waits until no reading that was told can be valid: not even one that has not arrived yet.
func (s *stage) limitPasses() {
	for {
		s.mu.Lock()
		rest := int64(s.clock().limit - s.clock().shows(steady.Exact()))
		s.mu.Unlock()
		if rest < 0 {
			return
		}
		s.quiet(time.Duration(rest) + time.Millisecond)
	}
}

// leaderless has no node tell anything, and waits until no reading is valid.
func (k *reader) leaderless() {
	k.c.s.lead(-1)
	k.c.s.limitPasses()
	k.do("interval").fails("C66", "no_leader")
}

// works reads the interval until it does not fail.
func (k *reader) works() { k.until("bounds", func(r Reply) bool { return r.OK != nil }) }

// reading begins a cluster, and a clock that has a reading.
func (s *stage) reading(rule string, nodes int, change ...func(*termClock)) *reader {
	for _, f := range change {
		f(s.clock())
	}
	s.start(nodes)
	k := s.open().clock()
	k.made.want(rule)
	return k
}

// limits are as long as that.
func limits(d time.Duration) func(*termClock) { return func(t *termClock) { t.length = uint64(d) } }

// bounds that nodes tell are as far away.
func bounds(d time.Duration) func(*termClock) {
	return func(t *termClock) { t.before, t.after = uint64(d), uint64(d) }
}

// fast is by how many millionths the clock is fast.
func fast(millionths int64) func(*termClock) { return func(t *termClock) { t.fast = millionths } }

// later returns a time after the largest limit that was told.
func (s *stage) later(d time.Duration) isotone.Timestamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return isotone.Timestamp{Time: s.clock().limit + uint64(d)}
}

// usual waits until one node was asked a few times in a row, and returns it.
func (s *stage) usual() (n *node) {
	s.await("a node that is asked for the cluster clock usually", func() bool { n = s.asked(4); return n != nil })
	return n
}

// asked returns the node to which the latest questions of clocks went, so many of them, or nil. It is called with stage.mu locked.
func (s *stage) asked(times int) (n *node) {
	for _, r := range slices.Backward(s.requests) {
		switch {
		case r.name != "INTERVAL":
			continue
		case n != nil && r.conn.node != n:
			return nil
		}
		n = r.conn.node
		if times--; times == 0 {
			return n
		}
	}
	return nil
}

// pause waits, as a slow network does.
func (s *stage) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// other returns the answer with a reading that differs from the right one, which counts for nothing.
func (s *stage) other(r *request, nonce uint64, change func(*interval.Reading)) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.clock().reading()
	change(&told)
	return readingOf(told, nonce)
}

// anHour moves a reading ahead.
func anHour(r *interval.Reading) {
	r.Earliest, r.Latest, r.Limit = r.Earliest+uint64(time.Hour), r.Latest+uint64(time.Hour), r.Limit+uint64(time.Hour)
}

// clocks returns the scenarios about cluster clocks.
func clocks() []Scenario {
	list := slices.Concat(clockCalls, clockReadings, clockNodes)
	for i := range list {
		list[i].Needs = append(list[i].Needs, featClock)
	}
	return list
}

var clockCalls = []Scenario{
	{Name: "a-clock", Rules: rules("C63", "C64", "C66", "C70", "C71"), play: func(s *stage) {
		k := s.reading("C66", 3)
		for range 3 {
			k.do("interval").want("C66")
		}
		k.stamp("C70", 1)
		k.stamp("C70", 1000)
		ts := k.stamp("C70", 65_536)
		k.wait("C71", ts)
		s.check(k.do("past", of(ts)).want("C71").Past, "C71", "%v is not past, though the wait for it has ended", ts)
		k.stamp("C70", 1)
	}},
	{Name: "a-clock-waits-until-a-timestamp-is-past", Rules: rules("C71"), play: func(s *stage) {
		k := s.reading("C71", 1, bounds(50*time.Millisecond))
		for range 3 {
			ts := k.stamp("C70", 1)
			k.do("past", of(ts)).want("C71")
			k.wait("C71", ts)
		}
	}},
	{Name: "several-waits", Rules: rules("C71"), play: func(s *stage) {
		k := s.reading("C71", 1, bounds(20*time.Millisecond))
		var waits []*call
		first := k.stamp("C70", 1)
		for _, ms := range []uint64{40, 10, 30, 0, 20} {
			waits = append(waits, k.do("wait", of(isotone.Timestamp{Time: first.Time + ms*1_000_000})))
		}
		wantAll("C71", waits...)
	}},
	{Name: "timestamps-go-on-from-the-last", Rules: rules("C70"), play: func(s *stage) {
		// The first timestamp is further ahead of what the clock knows later than the scenario may take.
		s.clock().after = uint64(10 * time.Minute)
		k := s.reading("C70", 1, limits(20*time.Minute))
		ahead := k.stamp("C70", 1)
		s.change("bounds are narrow", func() { s.clock().after = 0 })
		k.until("narrow bounds", func(r Reply) bool {
			latest, _ := strconv.ParseUint(cmp.Or(r.OK, &Result{}).Latest, 10, 64)
			return latest != 0 && latest < ahead.Time
		})
		for range 3 {
			k.stamp("C70", 2)
		}
	}},
	{Name: "clocks-make-different-timestamps", Rules: rules("C70"), play: func(s *stage) {
		s.start(1)
		one, two := s.open(), s.open()
		for _, k := range []*reader{one.clock(), one.clock(), two.clock()} {
			k.made.want("C72")
			k.stamp("C70", 100)
		}
	}},
	{Name: "more-timestamps-than-a-call-may-get", Rules: rules("C70"), play: func(s *stage) {
		k := s.reading("C70", 1)
		k.do("stamp", count(1_000_001)).fails("C70", "invalid_argument")
		k.stamp("C70", 1)
	}},
	{Name: "deadlines-of-a-clock", Rules: rules("C48", "C71"), play: func(s *stage) {
		k := s.reading("C71", 1, limits(200*time.Millisecond))
		never := s.later(time.Hour)
		k.do("wait", of(never), within(short)).fails("C48", "deadline_exceeded")
		k.leaderless()
		k.do("stamp", count(1), within(short)).fails("C48", "deadline_exceeded")
		k.do("wait", of(never), within(short)).fails("C48", "deadline_exceeded")
		k.c.clock(within(short)).made.fails("C72", "deadline_exceeded")
	}},
	{Name: "calls-of-a-clock-are-canceled", Rules: rules("C49"), play: func(s *stage) {
		k := s.reading("C49", 1, limits(200*time.Millisecond))
		k.leaderless()
		for _, c := range []*call{k.do("stamp", count(1)), k.do("wait", of(s.later(time.Hour))), k.c.clock().made} {
			c.cancel()
			c.fails("C49", "canceled")
		}
		s.lead(0)
		k.stamp("C49", 1)
	}},
	{Name: "a-clock-is-closed", Rules: rules("C73"), play: func(s *stage) {
		k := s.reading("C73", 2)
		waits := k.do("wait", of(s.later(time.Hour)))
		s.sync()
		k.do("stop").want("C73")
		waits.fails("C73", "closed")
		k.closed("a closed clock")
		another := k.c.clock()
		another.made.want("C73")
		another.stamp("C73", 1)
	}},
	{Name: "a-client-with-a-clock-is-closed", Rules: rules("C73", "C50"), play: func(s *stage) {
		k := s.reading("C73", 2)
		waits := k.do("wait", of(s.later(time.Hour)))
		s.sync()
		k.c.close().want("C50")
		waits.fails("C73", "closed")
		k.closed("a closed client")
	}},
	{Name: "a-clock-with-credentials", Rules: rules("C6", "C63"), Needs: needs(featCredentials), play: func(s *stage) {
		s.users["alice"] = "s3cret-9Qx"
		s.start(2)
		k := s.open(func(o *Options) { o.User, o.Secret = "alice", "s3cret-9Qx" }).clock()
		k.made.want("C63")
		k.stamp("C70", 1)
	}},
}

// closed requires that calls fail, and that no connection is left.
func (k *reader) closed(what string) {
	k.do("interval").fails("C73", "closed")
	k.do("stamp", count(1)).fails("C73", "closed")
	k.do("wait", of(isotone.Timestamp{Time: 1})).fails("C73", "closed")
	s := k.c.s
	s.await("the end of the connections of "+what, func() bool {
		return !slices.ContainsFunc(s.requests, func(r *request) bool { return r.name == "INTERVAL" && !r.conn.over })
	})
}
