package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

func TestClient_FindsTheLeaderFromAnyMember(t *testing.T) {
	for first := range 3 {
		f := startCluster(t, 3)
		f.lead(2)
		c := f.dial(client.Options{Addrs: []string{f.nodes[first].addr}})
		for want := range uint64(3) {
			ts, err := c.Timestamp(within(t, 5*time.Second))
			if err != nil || ts.Index != want+1 {
				t.Fatalf("asked node %d first: %v, %v; want index %d", first, ts, err, want+1)
			}
		}
	}
}

func TestClient_TimestampsAreARange(t *testing.T) {
	c := startCluster(t, 1).dial(client.Options{})
	ctx := within(t, 5*time.Second)
	for _, count := range []uint64{1, 2, 1000, isotone.RangeCountMax} {
		r, err := c.Timestamps(ctx, count)
		if err != nil || r.Count != count {
			t.Errorf("%d timestamps: %v, %v", count, r, err)
		}
	}
	for _, count := range []uint64{0, isotone.RangeCountMax + 1} {
		if _, err := c.Timestamps(ctx, count); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "in mode default: want 1 to 4294967296") {
			t.Errorf("%d timestamps: %v", count, err)
		}
	}
}

func TestClient_SendsTheModeOfTheCall(t *testing.T) {
	f := startCluster(t, 1)
	ctx := within(t, 5*time.Second)
	c := f.dial(client.Options{})
	lease := f.dial(client.Options{Mode: isotone.ReadLease})
	for _, ask := range []func(context.Context) (isotone.Timestamp, error){
		c.Timestamp, c.In(isotone.ReadQuorum).Timestamp, c.In(isotone.ReadLease).Timestamp,
		lease.Timestamp, lease.In(isotone.ReadQuorum).Timestamp, lease.In(isotone.ReadDefault).Timestamp,
	} {
		if _, err := ask(ctx); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"TS 1", "TS 1 QUORUM", "TS 1 LEASE", "TS 1 LEASE", "TS 1 QUORUM", "TS 1"}
	got := f.nodes[0].commands("TS")
	for i := range got {
		got[i], _, _ = strings.Cut(got[i], " FLOOR") // the first on a connection may have one
	}
	if !slices.Equal(got, want) {
		t.Errorf("the node got %q, want %q", got, want)
	}
	_, one := c.In(3).Timestamp(ctx)
	_, two := c.In(3).Timestamps(ctx, 2)
	for _, err := range []error{one, two} {
		if !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "read mode 3") {
			t.Errorf("an unknown mode: %v", err)
		}
	}
}

func TestOptions_EveryFaultIsNamed(t *testing.T) {
	_, err := client.NewWith(t.Context(), client.Options{
		Addrs: []string{"nowhere", "host:0", ":80", "a b:1"}, Mode: 7, Conns: -1, QueueMax: -1, DialTimeout: -1,
	})
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, word := range []string{`"nowhere"`, `"host:0"`, `":80"`, `"a b:1"`, "Mode", "Conns", "QueueMax", "DialTimeout"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s is missing in %v", word, err)
		}
	}
	if _, err := client.New(t.Context()); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("no address: %v", err)
	}
}

func TestNew_WaitsForALeaderAsLongAsTheContextAllows(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	f.lead(-1)
	await.Expired(t, func(ctx context.Context) error { _, err := client.New(ctx, f.addrs()...); return err }, func(err error) bool {
		return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), "no leader is known")
	})
	time.AfterFunc(50*time.Millisecond, func() { f.lead(1) })
	c, err := client.New(within(t, 10*time.Second), f.addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestNew_SaysWhatIsWrongWithTheAddresses(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"no-such-host.invalid:80", "127.0.0.1:1"} {
		await.Expired(t, func(ctx context.Context) error { _, err := client.New(ctx, addr); return err }, func(err error) bool {
			return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), addr)
		})
	}
}

func TestNewWith_LazyDoesNotWait(t *testing.T) {
	f := startCluster(t, 1)
	f.nodes[0].stop()
	c := f.dial(client.Options{Lazy: true})
	f.nodes[0].start()
	if _, err := c.Timestamp(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
}

func TestClose_FailsWhatWaitsAndWhatComes(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{})
	f.nodes[0].freeze()
	failed := make(chan error, 20)
	for range 10 {
		go func() { _, err := c.Timestamp(context.Background()); failed <- err }()
		go func() { _, err := c.Snowflake(context.Background()); failed <- err }()
	}
	await.Until(t, "a request at the leader", func() bool { return f.nodes[0].count("TS") > 0 })
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 10 {
		if err := <-failed; err != nil && !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call that waited: %v", err)
		}
	}
	if _, err := c.Timestamp(context.Background()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	if _, err := c.Snowflake(context.Background()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a call for an ID after Close: %v", err)
	}
	for range 10 {
		<-failed
	}
}

func TestCall_HonoursItsContext(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	f.nodes[0].freeze()
	why := errors.New("why")
	causes := map[string]func() (context.Context, func()){
		"deadline": func() (context.Context, func()) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			return ctx, cancel
		},
		"cancelled": func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(context.Background())
			stop := time.AfterFunc(30*time.Millisecond, func() { cancel(why) })
			return ctx, func() { stop.Stop() }
		},
		"done before": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		},
	}
	want := map[string][]error{
		"deadline":    {context.DeadlineExceeded, isotone.ErrDeadlineExceeded},
		"cancelled":   {context.Canceled, why},
		"done before": {context.Canceled},
	}
	for name, make := range causes {
		ctx, end := make()
		begin := time.Now()
		_, err := c.Timestamp(ctx)
		for _, target := range want[name] {
			if !errors.Is(err, target) {
				t.Errorf("%s: %v is not %v", name, err, target)
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		end()
	}
}

func TestHooks_SeeAnswersRetriesAndLeaders(t *testing.T) {
	f := startCluster(t, 2)
	var notes notes
	c := f.dial(client.Options{Hooks: client.Hooks{
		Answered: func(a client.Answer) {
			notes.add("answered %s ids=%v calls=%d count=%d", a.Addr, a.IDs, a.Calls, a.Count)
		},
		Retried: func(addr string, err error) { notes.add("retried %s %v", addr, errors.Is(err, isotone.ErrNotLeader)) },
		Leader:  func(addr string) { notes.add("leader %s", addr) },
	}})
	ctx := within(t, 10*time.Second)
	connected(t, c, client.ConnsDefault)
	_, _ = c.Timestamps(ctx, 5)
	f.lead(1)
	_, _ = c.Timestamp(ctx)
	_, _ = c.Snowflake(ctx)
	seen := notes.list()
	a, b := f.nodes[0].addr, f.nodes[1].addr
	want := []string{
		"leader " + a, "answered " + a + " ids=false calls=1 count=5",
		"retried " + a + " true", "leader " + b, "answered " + b + " ids=false calls=1 count=1",
	}
	if len(seen) != 6 || !slices.Equal(seen[:5], want) || !strings.Contains(seen[5], "ids=true calls=1 count=1") {
		t.Errorf("%q, want %q and one answer with IDs", seen, want)
	}
}

// TestCall_AllocatesLittle: a direct call allocates nothing, others their share of a batch.
func TestCall_AllocatesLittle(t *testing.T) {
	c := quietServer(t)
	ctx := context.Background()
	// On a busy machine an answer may be late. Then the client looks for another leader, which allocates, but not with every call.
	within := func(what string, most float64, call func() error) {
		var allocs float64
		await.Done(t, await.Timeout, func() (bool, string) {
			allocs = testing.AllocsPerRun(100, func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			return allocs <= most || t.Failed(), fmt.Sprintf("%s: %v allocations", what, allocs)
		})
	}
	within("a direct call", 0, func() error { _, err := c.Timestamp(ctx); return err })
	within("a call in a batch", 2, func() error { _, err := c.Timestamps(ctx, 1); return err })
}

func BenchmarkTimestamp_Alone(b *testing.B) {
	c := quietServer(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Timestamp(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTimestamp_Crowd makes calls from a thousand goroutines.
func BenchmarkTimestamp_Crowd(b *testing.B) {
	c := quietServer(b)
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(1000 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Timestamp(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// quietServer returns a client of a node that answers every request in the same way, and
// does not allocate. A fake cluster answers the client's first questions.
func quietServer(t testing.TB) *client.Client {
	t.Helper()
	f := startCluster(t, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var clock atomic.Uint64
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				answer, b := stamp(isotone.Timestamp{}), make([]byte, 256)
				for {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					binary.BigEndian.PutUint64(answer[len("$16\r\n"):], clock.Add(1))
					reply := answer
					if bytes.Contains(b[:n], []byte("INFO")) {
						reply = append(info(fakeID.String()), "+PONG\r\n"...)
					}
					if _, err := conn.Write(reply); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-MOVED 0 " + listener.Addr().String() + "\r\n"), args[0] == "TS"
	})
	c := f.dial(client.Options{})
	if _, err := c.Timestamp(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}
