package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// gaps watches a clock until stop is called, which returns how long the longest time was in which no
// reading was valid.
func gaps(k *client.Clock) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var longest time.Duration
	wg.Go(func() {
		last := time.Now()
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			now := time.Now()
			if _, err := k.Now(); err == nil {
				last = now
			}
			longest = max(longest, now.Sub(last))
		}
	})
	return func() time.Duration { cancel(); wg.Wait(); return longest }
}

// TestClockSync_OutlivesItsNode, however that fails: it ends, hangs up, is frozen, or refuses.
func TestClockSync_OutlivesItsNode(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]func(n *node){
		"ends":     func(n *node) { n.stop() },
		"hangs up": func(n *node) { n.hangUp(false) },
		"frozen":   func(n *node) { n.freeze() },
		"refuses": func(n *node) {
			n.replies(func(args []string) ([]byte, bool) {
				return []byte("-CLUSTERDOWN no reading\r\n"), args[0] == "INTERVAL"
			})
		},
		"was removed": func(n *node) { n.cluster.remove(n.index) },
	} {
		t.Run(what, func(t *testing.T) {
			f := startCluster(t, 3)
			f.change(func() { f.clock.length, f.clock.widths = time.Second, []uint64{0, 100e6, 100e6} })
			k := clock(t, f.dial(client.Options{Addrs: f.addrs()[:1], DialTimeout: 5 * time.Second}), client.ClockOptions{})
			await.Until(t, "the narrow one", func() bool { return k.Stats().Node == f.nodes[0].addr })
			stop := gaps(k)
			f.lead(1)
			fail(f.nodes[0])
			before := k.Stats().Readings
			await.Until(t, "readings go on", func() bool { return k.Stats().Readings > before+3 })
			if gap := stop(); gap > 500*time.Millisecond {
				t.Errorf("no valid reading for %v", gap)
			}
		})
	}
}

// TestClockSync_PrefersNarrowBounds, and asks the others only now and then.
func TestClockSync_PrefersNarrowBounds(t *testing.T) {
	f := startCluster(t, 3)
	f.lead(2)
	f.change(func() { f.clock.widths = []uint64{20e6, 20e6, 0} })
	k := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	await.Until(t, "the leader is preferred", func() bool { return k.Stats().Node == f.nodes[2].addr })
	before := f.nodes[0].count("INTERVAL") + f.nodes[1].count("INTERVAL")
	for range 5 {
		synced(t, k)
	}
	if after := f.nodes[0].count("INTERVAL") + f.nodes[1].count("INTERVAL"); after > before+2 { // under way when the search ended
		t.Errorf("%d questions to others", after-before)
	}
}

// TestClockSync_FindsNarrowerBoundsLater: at another node, also one that has joined since.
func TestClockSync_FindsNarrowerBoundsLater(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 2)
	f.change(func() { f.clock.widths = []uint64{60e6, 60e6, 60e6} })
	k := clock(t, f.dial(client.Options{}), client.WithProbe(20*time.Millisecond))
	synced(t, k)
	for _, narrow := range []int{0, 1, 2} {
		if narrow == 2 {
			f.add()
		}
		f.change(func() { f.clock.widths = []uint64{60e6, 60e6, 60e6}; f.clock.widths[narrow] = 0 })
		n := f.nodes[narrow]
		await.Until(t, "the narrow one is asked, on a connection that is kept", func() bool {
			questions, connections := n.count("INTERVAL"), n.count("PING")
			for range 3 {
				synced(t, k)
			}
			return n.count("INTERVAL") >= questions+2 && n.count("PING") == connections
		})
	}
}

// TestClockSync_KeepsToAQuota: it pauses for as long as the node asks.
func TestClockSync_KeepsToAQuota(t *testing.T) {
	f := startCluster(t, 1)
	k := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	var refused, begin, again atomic.Int64 // times since the begin of the test
	now := func() int64 { return int64(time.Since(begun)) }
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] != "INTERVAL" {
			return nil, false
		}
		if refused.Add(1) == 1 {
			begin.Store(now())
			return []byte("-QUOTA too many, retry after 200 ms\r\n"), true
		}
		again.CompareAndSwap(0, now())
		return nil, false
	})
	await.Until(t, "another question", func() bool { return again.Load() > 0 })
	if pause := time.Duration(again.Load() - begin.Load()); pause < 200*time.Millisecond {
		t.Errorf("asked again after %v", pause)
	}
	await.Until(t, "a reading", func() bool { _, err := k.Now(); return err == nil })
}

// TestClockSync_AsksAboutFourTimesWithinALimit, and every 5 ms at most.
func TestClockSync_AsksAboutFourTimesWithinALimit(t *testing.T) {
	for _, c := range []struct {
		length      time.Duration
		least, most time.Duration
	}{{400 * time.Millisecond, 100 * time.Millisecond, time.Second}, {time.Millisecond, 5 * time.Millisecond, 200 * time.Millisecond}} {
		f := startCluster(t, 1)
		f.change(func() { f.clock.length = c.length })
		k, _ := moved(t, f) // time stands still, so limits do not pass
		for range 2 {
			synced(t, k)
		}
		begin, before := time.Now(), k.Stats().Readings
		await.Until(t, "five readings", func() bool { return k.Stats().Readings >= before+5 })
		// The first of them may have been about to come.
		each := time.Since(begin) / 5
		if each < c.least*7/10 || each > c.most {
			t.Errorf("limits of %v: a question every %v", c.length, each)
		}
	}
}

// TestClockSync_RefusalsByAllNodesAreErrorsAtOnce: nodes of older versions, and those that refuse the
// client. One node that does not refuse is enough.
func TestClockSync_RefusalsByAllNodesAreErrorsAtOnce(t *testing.T) {
	f := startCluster(t, 2)
	refuse := func(answer string) func(args []string) ([]byte, bool) {
		return func(args []string) ([]byte, bool) { return []byte(answer), args[0] == "INTERVAL" }
	}
	c := f.dial(client.Options{})
	for answer, want := range map[string]error{
		"-ERR unknown command 'INTERVAL'\r\n": isotone.ErrInvalidArgument,
		"-NOPERM no right\r\n":                isotone.ErrForbidden,
		"-NOAUTH who is it?\r\n":              isotone.ErrUnauthorized,
	} {
		f.nodes[0].replies(refuse(answer))
		f.nodes[1].replies(refuse(answer))
		if k, err := c.NewClock(t.Context(), client.ClockOptions{}); !errors.Is(err, want) || k != nil {
			t.Errorf("%q: %v, %v", answer, k, err)
		}
		f.nodes[1].replies(nil)
		k := clock(t, c, client.ClockOptions{})
		f.nodes[1].replies(refuse(answer))
		if _, err := k.Timestamp(within(t, 10*time.Second)); err != nil {
			t.Errorf("%q, with a valid reading: %v", answer, err)
		}
		await.Until(t, "the error", func() bool { _, err := k.Now(); return errors.Is(err, want) })
		if _, err := k.Timestamp(t.Context()); !errors.Is(err, want) {
			t.Errorf("%q: %v", answer, err)
		}
		f.nodes[0].replies(nil)
		await.Until(t, "a reading", func() bool { _, err := k.Now(); return err == nil })
		f.nodes[1].replies(nil)
		_ = k.Close()
	}
}

// TestClockSync_WithoutALeaderNewClockWaits, until its context is done.
func TestClockSync_WithoutALeaderNewClockWaits(t *testing.T) {
	f := startCluster(t, 2)
	c := f.dial(client.Options{})
	f.lead(-1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if k, err := c.NewClock(ctx, client.ClockOptions{}); !errors.Is(err, isotone.ErrDeadlineExceeded) || k != nil {
		t.Errorf("%v, %v", k, err)
	}
	made := make(chan *client.Clock, 1)
	go func() {
		k, err := c.NewClock(within(t, 10*time.Second), client.ClockOptions{})
		if err != nil {
			t.Error(err)
		}
		made <- k
	}()
	f.lead(1)
	_ = receive(t, made).Close()
}

// TestClockSync_EndsItsConnections with the clock, also those that are being made.
func TestClockSync_EndsItsConnections(t *testing.T) {
	f := startCluster(t, 3)
	var open atomic.Int64
	c := f.dial(client.Options{DialTimeout: time.Minute, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &noted{Conn: nc, gone: sync.OnceFunc(func() { open.Add(-1) })}, nil
	}})
	connected(t, c, client.ConnsDefault)
	await.Until(t, "the search ends", func() bool { return open.Load() == client.ConnsDefault+1 })
	before := open.Load()
	for i := range 5 {
		k := clock(t, c, client.ClockOptions{})
		synced(t, k)
		await.Until(t, "one connection of the clock", func() bool { return open.Load() == before+1 })
		f.nodes[i%3].freeze()
		_ = k.Close()
		await.Until(t, "its connections are closed", func() bool { return open.Load() == before })
		f.nodes[i%3].thaw()
	}
}

// TestClockSync_AuthenticatesEachConnection, anew when a node has forgotten who it is.
func TestClockSync_AuthenticatesEachConnection(t *testing.T) {
	f := startCluster(t, 1)
	f.change(func() { f.secret = "hush" })
	c := f.dial(client.Options{Credentials: client.StaticCredentials("billing", "hush")})
	k := clock(t, c, client.ClockOptions{})
	before := f.nodes[0].count("PING")
	var forgot atomic.Bool
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-NOAUTH who is it?\r\n"), args[0] == "INTERVAL" && !forgot.Swap(true)
	})
	await.Until(t, "another connection", func() bool { return f.nodes[0].count("PING") > before })
	synced(t, k)
	if s := k.Stats(); s.Failures != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
}
