package sim

import (
	cryptorand "crypto/rand"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/snowflake"
)

func TestLedger_NoticesEveryNumberThatIsThereTwice(t *testing.T) {
	a, b := &maker{name: "a", lease: oracle.WorkerLease{Worker: 3}}, &maker{name: "b", lease: oracle.WorkerLease{Worker: 3}}
	other := &maker{name: "c", lease: oracle.WorkerLease{Worker: 4}}
	for name, tc := range map[string]struct {
		s    span
		want bool
	}{
		"before":          {span{first: 1, last: 9, by: b}, true},
		"between":         {span{first: 20, last: 29, by: b}, true},
		"after":           {span{first: 41, last: 41, by: b}, true},
		"another worker":  {span{first: 10, last: 19, by: other}, true},
		"the same":        {span{first: 10, last: 19, by: b}, false},
		"its first":       {span{first: 5, last: 10, by: b}, false},
		"its last":        {span{first: 19, last: 25, by: b}, false},
		"inside":          {span{first: 12, last: 12, by: b}, false},
		"around":          {span{first: 5, last: 25, by: b}, false},
		"across two":      {span{first: 15, last: 35, by: b}, false},
		"across the next": {span{first: 25, last: 30, by: b}, false},
		"its own":         {span{first: 19, last: 19, by: a}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			for _, s := range []span{{first: 30, last: 40, by: a}, {first: 10, last: 19, by: a}} {
				if err := l.enter(snowflake.Twitter, s); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.enter(snowflake.Twitter, tc.s); (err == nil) != tc.want {
				t.Errorf("%v", err)
			}
			layout := snowflake.Twitter
			layout.Epoch++
			if err := l.enter(layout, span{first: 1000, last: 1000, by: b}); err == nil || !strings.Contains(err.Error(), "layout") {
				t.Errorf("another layout: %v", err)
			}
		})
	}
}

// TestRun_IDsGoOnWithoutAQuorumUntilTheLeaseEnds cuts all nodes off from each other. Each
// makes ids for at least 3/4 of a lease, none after its end, and again once they are
// connected.
func TestRun_IDsGoOnWithoutAQuorumUntilTheLeaseEnds(t *testing.T) {
	const tick, lease = 10 * time.Millisecond, 2 * time.Second
	reader := cryptorand.Reader
	defer func() { cryptorand.Reader = reader }()
	cryptorand.Reader = jitter{rand.New(rand.NewPCG(1, 1))}
	w := newWorld(Options{Seed: 1})
	w.journals.cuts, w.journals.rots = false, false
	w.cfg = config{size: 3, tick: tick, epochTicks: 10, epochInterval: 10 * tick, snapshotEvery: 50}
	w.cfg.ids = idConfig{layout: snowflake.Twitter, leaseMillis: uint64(lease / time.Millisecond), ahead: time.Millisecond}
	w.weather = calm(tick)
	w.populate()
	var links []*link
	for _, n := range w.nodes {
		w.crash(n)
		n.clock.rate, n.ids.workers = 1, 1
		w.start(n)
		for _, o := range w.nodes {
			links = append(links, w.link(n, o))
		}
	}
	// made returns which nodes make ids in the next tick.
	made := func() (list [3]bool) {
		w.advance(w.now + tick)
		for i, n := range w.nodes {
			before := w.stats.IDs
			w.makeIDs(n)
			list[i] = w.stats.IDs > before
		}
		return list
	}
	all := [3]bool{true, true, true}
	within := func(d time.Duration) {
		t.Helper()
		for until := w.now + d; made() != all; {
			if w.now > until {
				t.Fatalf("at %v not all nodes make ids", w.now)
			}
		}
	}
	within(5 * time.Second)
	w.advance(w.now + 3*lease) // some renewals
	block(links, 1)
	cut := w.now
	var ends [3]time.Duration
	for w.now < cut+2*lease {
		for i, ok := range made() {
			if ok {
				ends[i] = w.now
			}
		}
	}
	for i, n := range w.nodes {
		end := time.Duration(n.makers[0].lease.End)*time.Millisecond - worldStart
		if ends[i] < cut+lease*3/4-5*tick || ends[i] < end-tick || ends[i] >= end {
			t.Errorf("node %d was cut off at %v, its lease ended at %v, it made ids until %v", n.id, cut, end, ends[i])
		}
	}
	block(links, -1)
	within(5 * time.Second)
	if w.violation != nil {
		t.Error(w.violation)
	}
}
