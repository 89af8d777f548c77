//go:build linux

package chaos

import (
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// A Watch asks each node of a cluster all the time, on a connection of its own. Unlike a [Load] it
// follows nobody, so it misses the first answer of a new leader by a fraction of a millisecond,
// and says by how much.
const (
	// calmPause separates the requests to one node; OutagePause does during an outage, if nothing
	// else is set.
	calmPause   = 2 * time.Millisecond
	OutagePause = 100 * time.Microsecond
	// deadPause is the pause before a node that is not connected is tried again.
	deadPause = 2 * time.Millisecond
	// watchTimeout bounds one request.
	watchTimeout = 500 * time.Millisecond
	// rampPause lets the requests that were sent in calm end before an outage begins.
	rampPause = 4 * calmPause
)

// Watch checks the order of all answers. Use [StartWatch].
type Watch struct {
	// Pause separates the requests to one node during an outage. It may be set before the first one.
	Pause  time.Duration
	target string
	epoch  time.Time
	online *lincheck.Online
	quit   chan struct{}
	done   sync.WaitGroup

	mu       sync.Mutex
	outage   *Outage // nil in calm
	answered int
	last     time.Duration // when the latest answer came
	gap      time.Duration // the longest time without one
	faults   []string
}

// StartWatch watches the nodes at addrs by requests for a timestamp; query is appended to the path.
// The end of the test ends it.
func StartWatch(t testing.TB, addrs []string, query string) *Watch {
	w := &Watch{Pause: OutagePause, target: "/timestamp?n=1" + query, epoch: time.Now(), online: lincheck.NewOnline(0), quit: make(chan struct{})}
	for _, addr := range addrs {
		a := &watcher{watch: w, addr: addr, conns: conns{}}
		w.done.Go(a.run)
	}
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *Watch) now() time.Duration { return time.Since(w.epoch) }

func (w *Watch) stop() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	w.done.Wait()
}

// Stop ends the watch, and fails the test if an answer was wrong. It returns how many requests
// were answered, and the longest time without an answer.
func (w *Watch) Stop(t testing.TB) (answered int, gap time.Duration) {
	t.Helper()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fault := range w.faults {
		t.Error(fault)
	}
	if s := w.online.Stats(); s.Violations > 0 || s.Unverified > 0 {
		t.Errorf("online check: %+v", s)
	}
	return w.answered, w.gap
}

// An Outage is the time from an event until the first answer of another node than the one it
// befalls.
type Outage struct {
	victim string
	// isSilent: the victim is not asked.
	isSilent bool
	// lasts: no answer ends it.
	lasts bool
	from  time.Duration // of the event; 0: it has not begun
	last  time.Duration
	done  chan struct{} // closed when the fields below are set

	took, gap, added time.Duration
	winner           string
	at               time.Time
}

// PrepareGap is Prepare for an event that should not interrupt the answers. The outage ends with [Watch.EndGap].
func (w *Watch) PrepareGap() *Outage {
	o := &Outage{lasts: true, done: make(chan struct{})}
	w.mu.Lock()
	w.outage = o
	w.mu.Unlock()
	time.Sleep(rampPause)
	return o
}

// EndGap ends an outage that no answer ends. It waits for another answer first, so that a silence that lasts counts.
func (w *Watch) EndGap(t testing.TB, o *Outage, timeout time.Duration) Outcome {
	t.Helper()
	w.mu.Lock()
	o.lasts = false
	w.mu.Unlock()
	return w.End(t, o, timeout)
}

// Prepare has the watch ask as often as it does during an outage. The event follows
// [Outage.Begin]. A silent victim gives no answer that counts and is asked nothing; otherwise its
// answers count for the longest time without one.
func (w *Watch) Prepare(victim string, isSilent bool) *Outage {
	o := &Outage{victim: victim, isSilent: isSilent, done: make(chan struct{})}
	w.mu.Lock()
	w.outage = o
	w.mu.Unlock()
	time.Sleep(rampPause)
	return o
}

// Begin marks the moment of the event, which the caller causes next.
func (w *Watch) Begin() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.outage.from = now.Sub(w.epoch)
	w.outage.last = w.outage.from
	return now
}

// Outcome is what a watch has seen of an outage.
type Outcome struct {
	// Took is the time from the event to the first answer of another node, to a request that was
	// sent after the event. Gap is the longest time without any answer meanwhile.
	Took, Gap time.Duration
	// Added is how much of it the watch may have added: the time between the request that was
	// answered and the one before it, to the same node.
	Added time.Duration
	// Winner is the address of the node that answered, At when.
	Winner string
	At     time.Time
}

// End waits for the end of an outage. The watch goes on calmly.
func (w *Watch) End(t testing.TB, o *Outage, timeout time.Duration) Outcome {
	t.Helper()
	select {
	case <-o.done:
	case <-time.After(timeout):
		t.Fatalf("no answer within %v", timeout)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outage = nil
	return Outcome{Took: o.took, Gap: o.gap, Added: o.added, Winner: o.winner, At: o.at}
}

// pace returns the pause between requests to a node, or that it is not to be asked.
func (w *Watch) pace(addr string) (pause time.Duration, ask bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := w.outage; {
	case o == nil:
		return calmPause, true
	case o.isSilent && o.victim == addr:
		return calmPause, false
	}
	return w.Pause, true
}

// succeeded records an answer to a request that was sent at a time, previous being when the one
// before it was.
func (w *Watch) succeeded(addr string, previous, sent, received time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered++
	if w.last > 0 {
		w.gap = max(w.gap, received-w.last)
	}
	w.last = max(w.last, received)
	o := w.outage
	if o == nil || o.from == 0 || o.took > 0 || o.isSilent && o.victim == addr {
		return
	}
	o.gap = max(o.gap, received-o.last)
	o.last = max(o.last, received)
	if addr == o.victim || sent < o.from || o.lasts {
		return
	}
	o.took, o.winner, o.at = received-o.from, addr, w.epoch.Add(received)
	o.added = sent - max(previous, o.from)
	close(o.done)
}

func (w *Watch) fault(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < faultsMax {
		w.faults = append(w.faults, text)
	}
}

// watcher asks one node.
type watcher struct {
	watch    *Watch
	addr     string
	conns    conns
	previous time.Duration // when it sent its previous request
}

func (a *watcher) run() {
	defer a.conns.close()
	for {
		select {
		case <-a.watch.quit:
			return
		default:
		}
		pause, ask := a.watch.pace(a.addr)
		if ask && !a.ask() {
			pause = max(pause, deadPause)
		}
		nap(pause)
	}
}

// ask sends one request, and reports whether the node answered anything.
func (a *watcher) ask() bool {
	conn, err := a.conns.to(a.addr, watchTimeout)
	if err != nil {
		return false
	}
	floor, sent, previous := a.watch.online.Begin(), a.watch.now(), a.previous
	a.previous = sent
	answer, err := a.conns.ask(conn, a.watch.target, watchTimeout)
	received := a.watch.now()
	switch {
	case err != nil:
		return false
	case answer.Status == 200:
		a.succeeded(answer, floor, previous, sent, received)
	case !slices.Contains([]isotone.Code{isotone.CodeNotLeader, isotone.CodeNoLeader, isotone.CodeOverloaded, isotone.CodeDeadlineExceeded}, answer.Code()):
		a.watch.fault(a.addr + " answered " + string(answer.Body))
	}
	return true
}

// succeeded checks timestamps, and records them unless they are wrong.
func (a *watcher) succeeded(answer *Answer, floor isotone.Timestamp, previous, sent, received time.Duration) {
	r, err := answer.Range()
	if err == nil {
		err = a.watch.online.End(floor, r)
	}
	if err != nil {
		a.watch.fault(a.addr + ": " + err.Error())
		return
	}
	a.watch.succeeded(a.addr, previous, sent, received)
}

// nap sleeps for d. The timers of the Go runtime round up to a millisecond in an idle process.
func nap(d time.Duration) {
	left := unix.NsecToTimespec(int64(d))
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
