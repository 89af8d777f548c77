package disruptor

import (
	"context"
	"flag"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Calls to a ring are cheap; -rapid.checks and -rapid.steps override these.
	_ = flag.Set("rapid.checks", "1000")
	_ = flag.Set("rapid.steps", "60")
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must happen. It only ends tests that hang.
const patience = time.Minute

func newRing[T any](t testing.TB, capacity int) *Ring[T] {
	t.Helper()
	r, err := New[T](capacity)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// patient returns a context for calls that must return.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(100 * time.Microsecond) {
		if time.Since(start) > patience {
			buf := make([]byte, 1<<16)
			t.Fatalf("not in time: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// wait returns when done is closed.
func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		buf := make([]byte, 1<<16)
		t.Fatalf("not in time: %s\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// start runs f and returns a channel that is closed when it has returned.
func start(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// writer has the methods that both kinds of producers share.
type writer interface {
	Reserve(context.Context, int) (lo, hi uint64, err error)
	TryReserve(int) (lo, hi uint64, err error)
	Commit(lo, hi uint64)
	Close()
}

var (
	_ writer = (*Producer)(nil)
	_ writer = (*SharedProducer)(nil)
)

// writerOf returns the producer of r, either kind.
func writerOf[T any](r *Ring[T], shared bool) writer {
	if shared {
		return r.SharedProducer()
	}
	return r.Producer()
}

// eachWriter runs a test with either kind of producer.
func eachWriter(t *testing.T, test func(t *testing.T, shared bool)) {
	t.Run("Producer", func(t *testing.T) { test(t, false) })
	t.Run("SharedProducer", func(t *testing.T) { test(t, true) })
}

// eachProcs runs a test with 1, 2 and 4 processors.
func eachProcs(t *testing.T, test func(t *testing.T)) {
	for _, n := range []int{1, 2, 4} {
		t.Run("procs="+string(rune('0'+n)), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			test(t)
		})
	}
}
