package resp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// fakeClock is a cluster clock that shows what it is told.
type fakeClock struct {
	reading interval.Reading
	err     error
	reads   int
}

const shownAt = 1_790_000_000_000_000_000

func newFakeClock() *fakeClock {
	return &fakeClock{reading: interval.Reading{Cluster: 0xabc, Term: 9, Earliest: shownAt, Latest: shownAt + 1000, Limit: shownAt + 1_000_000_000}}
}

func (k *fakeClock) Now() (interval.Reading, error) {
	k.reads++
	return k.reading, k.err
}

// timers are the timers of a front, which run when they are told to.
type timers struct{ waiting []func() }

func (x *timers) after(_ time.Duration, f func()) *time.Timer {
	x.waiting = append(x.waiting, f)
	return nil
}

// fire runs all that wait.
func (x *timers) fire() {
	waiting := x.waiting
	x.waiting = nil
	for _, f := range waiting {
		f()
	}
}

func newClockFront(k front.Clock, observe func(protocol, code string, requests int, wall time.Duration)) (*Front, *timers) {
	f := New(Config{Backend: newOracle(), IDs: &ids{next: 7}, Clock: k, Post: func(f func()) { f() }, Observe: observe})
	x := &timers{}
	f.after = x.after
	return f, x
}

func readingReply(r interval.Reading, nonce uint64) string { return bulk(string(r.Append(nil, nonce))) }

func TestConn_IntervalReadsTheClock(t *testing.T) {
	k := newFakeClock()
	f, _ := newClockFront(k, nil)
	w := newTape(t, f)
	w.feed([]byte("INTERVAL\r\ninterval 5\r\nPING\r\n*2\r\n$8\r\nInterval\r\n$20\r\n18446744073709551615\r\n"))
	want := readingReply(k.reading, 0) + readingReply(k.reading, 5) + "+PONG\r\n" + readingReply(k.reading, 1<<64-1)
	if string(w.got) != want || k.reads != 3 {
		t.Errorf("%d reads, got %q, want %q", k.reads, w.got, want)
	}
}

func TestConn_IntervalStampsHaveTimesOfTheirOwn(t *testing.T) {
	k := newFakeClock()
	f, _ := newClockFront(k, nil)
	w, other := newTape(t, f), newTape(t, f)
	var last isotone.Timestamp
	for i, tt := range []struct {
		tape *tape
		say  string
		n    uint64
	}{{w, "INTERVAL STAMP", 1}, {w, "interval stamp 1", 1}, {other, "INTERVAL STAMP 1000", 1000}, {w, "INTERVAL STAMP", 1}} {
		tt.tape.got = nil
		tt.tape.feed([]byte(tt.say + "\r\n"))
		var at isotone.Timestamp
		body, ok := bytes.CutPrefix(tt.tape.got, []byte("$16\r\n"))
		if !ok || at.UnmarshalBinary(bytes.TrimSuffix(body, []byte("\r\n"))) != nil {
			t.Fatalf("%s: %q", tt.say, tt.tape.got)
		}
		if at.Time < k.reading.Latest || at.Index < interval.IndexMin || i > 0 && (at.Time != last.Time+1 || at.Index != last.Index) {
			t.Errorf("%s: %v after %v", tt.say, at, last)
		}
		last = isotone.Timestamp{Time: at.Time + tt.n - 1, Index: at.Index}
	}
}

func TestConn_IntervalRefusals(t *testing.T) {
	k := newFakeClock()
	var codes []string
	f, _ := newClockFront(k, func(_, code string, n int, _ time.Duration) { codes = append(codes, code) })
	w := newTape(t, f)
	say := func(text string) string {
		w.got = nil
		w.feed([]byte(text + "\r\n"))
		return string(w.got)
	}
	for text, want := range map[string]string{
		"INTERVAL x":                    `-ERR nonce "x": want a whole number of 64 bits`,
		"INTERVAL -1":                   `-ERR nonce "-1"`,
		"INTERVAL 18446744073709551616": "-ERR nonce",
		"INTERVAL 1 2":                  "-ERR want INTERVAL [nonce]",
		"INTERVAL STAMP 0":              `-ERR count "0": want a whole number from 1 to 65536`,
		"INTERVAL STAMP 65537":          `-ERR count "65537"`,
		"INTERVAL STAMP 1 2":            "-ERR want INTERVAL [nonce]",
		"INTERVAL WAIT":                 `-ERR nonce "WAIT"`,
		"INTERVAL WAIT 12":              `-ERR timestamp "12": want 32 hexadecimal digits`,
		"INTERVAL WAIT " + isotone.Timestamp{}.String() + " 1": "-ERR want INTERVAL [nonce]",
	} {
		if got := say(text); !strings.HasPrefix(got, want) || strings.Count(got, "\r\n") != 1 {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if k.reads != 0 {
		t.Error("a bad command has read the clock")
	}
	past := "INTERVAL WAIT " + isotone.Timestamp{Time: 1}.String()
	for _, tt := range []struct {
		err  error
		want string
	}{{isotone.ErrNoLeader, "-CLUSTERDOWN "}, {isotone.ErrClock, "-TRYAGAIN "}, {isotone.ErrNotFound, "-ERR "}} {
		k.err = tt.err
		for _, text := range []string{"INTERVAL", "INTERVAL STAMP 2", past} {
			if got := say(text); !strings.HasPrefix(got, tt.want) && (text != past || tt.err != isotone.ErrNoLeader) {
				t.Errorf("%s with %v: %q", text, tt.err, got)
			}
		}
	}
	if got := say(past); len(codes) == 0 || codes[len(codes)-1] != string(isotone.CodeNotFound) {
		t.Errorf("%q, observed %q", got, codes)
	}
	k.err = nil
	if got := say("MULTI") + say(past) + say("INTERVAL") + say("EXEC"); got != "+OK\r\n-ERR INTERVAL WAIT is not allowed between MULTI and EXEC\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n" {
		t.Errorf("%q", got)
	}
	if got, want := say("MULTI")+say("INTERVAL 3")+say("INTERVAL STAMP")+say("EXEC"), "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n"+readingReply(k.reading, 3)+"$16\r\n"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	proxy := newTape(t, New(Config{Backend: newOracle()}))
	proxy.feed([]byte("INTERVAL\r\nINTERVAL STAMP\r\n" + past + "\r\n"))
	if got := string(proxy.got); strings.Count(got, "-ERR the cluster clock is not read here: ask a node") != 3 {
		t.Errorf("without a clock: %q", got)
	}
}

func TestConn_IntervalWaitsInItsPlace(t *testing.T) {
	k := newFakeClock()
	var observed []string
	f, x := newClockFront(k, func(protocol, code string, n int, wall time.Duration) {
		observed = append(observed, fmt.Sprintf("%s %s %d %v", protocol, code, n, wall))
	})
	w, other := newTape(t, f), newTape(t, f)
	at := isotone.Timestamp{Time: shownAt, Index: 5}
	raw, _ := at.MarshalBinary()
	w.feed([]byte("PING\r\nINTERVAL WAIT " + at.String() + "\r\nPING\r\n" + string(array("INTERVAL", "wait", string(raw))) + "PING\r\n"))
	for range 3 {
		if !w.paused || len(x.waiting) != 1 || string(w.got) != "+PONG\r\n" || f.pastWaits != 1 {
			t.Fatalf("paused: %v, %d timers, %q, %d waits", w.paused, len(x.waiting), w.got, f.pastWaits)
		}
		x.fire()
	}
	other.feed([]byte("INTERVAL 2\r\nPING\r\n"))
	if want := readingReply(k.reading, 2) + "+PONG\r\n"; string(other.got) != want {
		t.Errorf("another connection: %q", other.got)
	}
	k.err = isotone.ErrNoLeader // an old bound counts
	k.reading.Earliest++
	w.now += 3 * time.Millisecond
	observed = nil
	x.fire()
	w.flush()
	w.turn()
	if got := string(w.got); got != "+PONG\r\n+OK\r\n+PONG\r\n+OK\r\n+PONG\r\n" || f.pastWaits != 0 || len(x.waiting) != 0 {
		t.Errorf("%q, %d waits, %d timers", got, f.pastWaits, len(x.waiting))
	}
	if want := []string{"resp ok 1 3ms", "resp ok 1 0s"}; !slices.Equal(observed, want) {
		t.Errorf("observed %q, want %q", observed, want)
	}
}

func TestConn_IntervalWaitEnds(t *testing.T) {
	const say = "INTERVAL WAIT ffffffffffffffff0000000000000000\r\n"
	for name, tt := range map[string]struct {
		end  func(k *fakeClock, w *tape)
		want string
	}{
		"after ten seconds":         {func(_ *fakeClock, w *tape) { w.now += front.ClockWaitMax }, "-TRYAGAIN the cluster clock has not passed"},
		"when no wait helps":        {func(k *fakeClock, _ *tape) { k.err = isotone.ErrClock }, "-TRYAGAIN "},
		"when the node stops":       {func(_ *fakeClock, w *tape) { w.conn.front.Stop() }, "-CLUSTERDOWN this node is stopping"},
		"when the client has left":  {func(_ *fakeClock, w *tape) { w.conn.Closed(nil, nil) }, ""},
		"not before ten seconds":    {func(_ *fakeClock, w *tape) { w.now += front.ClockWaitMax - 1 }, "waits"},
		"not while nothing is told": {func(k *fakeClock, _ *tape) { k.err, k.reading = isotone.ErrNoLeader, interval.Reading{} }, "waits"},
	} {
		k := newFakeClock()
		f, x := newClockFront(k, nil)
		w := newTape(t, f)
		w.feed([]byte(say))
		tt.end(k, w)
		x.fire()
		w.flush()
		if waits := tt.want == "waits"; waits {
			if len(w.got) > 0 || f.pastWaits != 1 || len(x.waiting) != 1 {
				t.Errorf("%s: %q, %d waits", name, w.got, f.pastWaits)
			}
			continue
		}
		if !strings.HasPrefix(string(w.got), tt.want) || f.pastWaits != 0 || len(x.waiting) != 0 {
			t.Errorf("%s: %q, %d waits, %d timers", name, w.got, f.pastWaits, len(x.waiting))
		}
	}
}

func TestConn_IntervalWaitsAreBounded(t *testing.T) {
	const say = "INTERVAL WAIT ffffffffffffffff0000000000000000\r\n"
	f, _ := newClockFront(newFakeClock(), nil)
	for range pastWaitsMax {
		w := newTape(t, f)
		if w.feed([]byte(say)); len(w.got) > 0 || !w.paused {
			t.Fatalf("%q", w.got)
		}
	}
	w := newTape(t, f)
	w.feed([]byte(say + "PING\r\n"))
	if want := "-TRYAGAIN too many commands wait for the cluster clock\r\n+PONG\r\n"; string(w.got) != want {
		t.Errorf("%q, want %q", w.got, want)
	}
}

// TestRig_IntervalWait: a timer wakes the loop.
func TestRig_IntervalWait(t *testing.T) {
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	posted := make(chan struct{}, 1)
	f := New(Config{Backend: newOracle(), Clock: newFakeClock(), Post: func(f func()) {
		if l.Post(f) {
			select {
			case posted <- struct{}{}:
			default:
			}
		}
	}})
	w := newTape(t, f)
	w.feed([]byte("INTERVAL WAIT " + isotone.Timestamp{Time: shownAt}.String() + "\r\n"))
	<-posted
	f.cfg.Clock.(*fakeClock).reading.Earliest++
	for len(w.out) == 0 {
		if err := l.Wait(patience); err != nil {
			t.Fatal(err)
		}
	}
	if w.flush(); string(w.got) != "+OK\r\n" {
		t.Errorf("%q", w.got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
