//go:build linux

package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// CallDeadline returns the deadline of each call of the Go client. No call may miss it while a
// majority of the nodes runs. An election takes some hundred milliseconds, so storms on a machine
// of their own set CALL_DEADLINE to 2s; the default is for a machine that other tests keep busy.
func CallDeadline() time.Duration {
	text := cmp.Or(os.Getenv("CALL_DEADLINE"), "15s")
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		panic(fmt.Sprintf("CALL_DEADLINE=%q: want a duration, as in 2s", text))
	}
	return d
}

// ClientLoad runs goroutines that call the Go client all the time.
type ClientLoad struct {
	// Client is what they call.
	Client *client.Client
	// Online checks the order of the answers.
	Online *lincheck.Online
	// Answered and Expired count calls that were answered, and that have missed their deadlines.
	Answered, Expired atomic.Int64
	// Faults are the first errors, those of missed deadlines among them, and Slowest is the time
	// of the slowest call. They may be read after [ClientLoad.End].
	Faults  []error
	Slowest time.Duration

	timeline string             // "": the default order
	shared   bool               // Client is that of another load
	modes    []isotone.ReadMode // of the goroutines, in turn
	deadline time.Duration      // of each call
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	began    time.Time
	stop     context.CancelFunc
	work     sync.WaitGroup
	mu       sync.Mutex // for Faults, Slowest and retried
	retried  int
}

// StartClientLoad starts a load in the default read mode of the nodes, or in several. It requests
// timestamps of 64 bits as well, unless nodes may run a version that knows none.
func StartClientLoad(t *testing.T, c *chaos.Cluster, goroutines int, modes ...isotone.ReadMode) *ClientLoad {
	t.Helper()
	return (&ClientLoad{modes: modes, deadline: CallDeadline(), dial: c.Dialer()}).start(t, c.Addrs(), goroutines)
}

// StartClientLoadWithin starts a load whose calls have the given deadline.
func StartClientLoadWithin(t *testing.T, addrs []string, goroutines int, deadline time.Duration) *ClientLoad {
	t.Helper()
	return (&ClientLoad{deadline: deadline}).start(t, addrs, goroutines)
}

// StartTimeline starts a load of a timeline by the same client. It ends before l does.
func (l *ClientLoad) StartTimeline(t *testing.T, name string, goroutines int) *ClientLoad {
	t.Helper()
	other := &ClientLoad{Client: l.Client, timeline: name, shared: true, deadline: l.deadline}
	other.run(t, goroutines)
	return other
}

// inStorm reports whether this is a storm, which has the machine for itself: it sets CALL_DEADLINE.
func inStorm() bool { return os.Getenv("CALL_DEADLINE") != "" }

// loadPause is the wait of a goroutine between two calls. It leaves processor time for the nodes and, in go test, for
// other tests.
func loadPause() time.Duration {
	if inStorm() {
		return 2 * time.Millisecond
	}
	return 8 * time.Millisecond
}

// start lets goroutines call the nodes at addrs until [ClientLoad.End].
func (l *ClientLoad) start(t *testing.T, addrs []string, goroutines int) *ClientLoad {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), chaos.ReadyTimeout)
	defer cancel()
	var err error
	l.Client, err = client.NewWith(ctx, client.Options{Addrs: addrs, Dial: l.dial, Hooks: client.Hooks{
		Retried: func(string, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.retried++
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.run(t, goroutines)
	return l
}

// run lets goroutines call the client until [ClientLoad.End].
func (l *ClientLoad) run(t *testing.T, goroutines int) {
	l.Online, l.began = lincheck.NewOnline(0), time.Now()
	if len(l.modes) == 0 {
		l.modes = []isotone.ReadMode{isotone.ReadDefault}
	}
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	for i := range goroutines {
		l.work.Go(func() {
			for running.Err() == nil {
				l.call(uint64(i))
				time.Sleep(loadPause())
			}
		})
	}
	t.Cleanup(func() { l.End() })
}

func (l *ClientLoad) call(id uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
	defer cancel()
	floor, begin := l.Online.Begin(), time.Now()
	r, err := l.ask(ctx, id)
	took := time.Since(begin)
	switch {
	case errors.Is(err, isotone.ErrDeadlineExceeded):
		l.Expired.Add(1)
	case err == nil:
		l.Answered.Add(1)
		err = l.Online.End(floor, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Slowest = max(l.Slowest, took)
	if err != nil && len(l.Faults) < 10 {
		l.Faults = append(l.Faults, err)
	}
}

// ask requests one to three timestamps or, every fourth time, one of 64 bits, which stands for its place
// among the others.
func (l *ClientLoad) ask(ctx context.Context, id uint64) (isotone.Range, error) {
	reader := l.Client.In(l.modes[id%uint64(len(l.modes))])
	if l.timeline != "" {
		reader = l.Client.Timeline(l.timeline)
	}
	if id/3%4 != 3 {
		return reader.Timestamps(ctx, 1+id%3)
	}
	u, err := reader.Timestamp64(ctx)
	return isotone.Range{First: u.Timestamp(), Count: 1}, err
}

// More waits for further answers.
func (l *ClientLoad) More(t *testing.T, answers int64) {
	t.Helper()
	WantAnswers(t, &l.Answered, answers)
}

// Forgive drops the faults that match an error. It may be called while the load runs.
func (l *ClientLoad) Forgive(target error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Faults = slices.DeleteFunc(l.Faults, func(err error) bool { return errors.Is(err, target) })
}

// End stops the load. It may be called more than once.
func (l *ClientLoad) End() {
	l.stop()
	l.work.Wait()
	if !l.shared {
		_ = l.Client.Close()
	}
}

// Took returns how long the load has run.
func (l *ClientLoad) Took() time.Duration { return time.Since(l.began) }

// Verify ends the load. No call may have failed or received a wrong answer.
func (l *ClientLoad) Verify(t *testing.T) {
	t.Helper()
	l.End()
	t.Logf("%d calls answered, %d expired, the slowest took %v; %d requests sent again", l.Answered.Load(), l.Expired.Load(), l.Slowest, l.retried)
	for _, err := range l.Faults {
		t.Error(err)
	}
	if s := l.Online.Stats(); s.Violations > 0 || s.Unverified > 0 {
		t.Errorf("%+v", s)
	}
	if slack := 500 * time.Millisecond; l.Slowest > l.deadline+slack {
		t.Errorf("a call with %v took %v", l.deadline, l.Slowest)
	}
}
