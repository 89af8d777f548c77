package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// next gets one timestamp of a timeline, or of the default order.
func next(t *testing.T, r client.Reader) isotone.Timestamp {
	t.Helper()
	ts, err := r.Timestamp(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// timelineCommands returns the commands that a node has received for a timeline.
func timelineCommands(n *node, name string) (list []string) {
	for _, command := range n.commands("TS") {
		if strings.HasSuffix(command, "TIMELINE "+name) {
			list = append(list, command)
		}
	}
	return list
}

// TestTimeline_EachHasItsOrderAndItsOwner: requests go to the owner once it is known, over as many connections as one timeline has.
func TestTimeline_EachHasItsOrderAndItsOwner(t *testing.T) {
	f := startCluster(t, 3)
	f.create(2, "a", "b", "c")
	f.create(1, "d")
	c := f.dial(client.Options{})
	for _, name := range []string{"a", "b", "c", "d"} {
		for i := range uint64(5) {
			if ts := next(t, c.Timeline(name)); ts.Index != i+1 {
				t.Fatalf("timestamp %d of %s: %v", i, name, ts)
			}
		}
	}
	wantTimestamp(t, c)
	other := f.nodes[0].count("TS 1 TIMELINE") + f.nodes[1].count("TS 1 TIMELINE a") + f.nodes[1].count("TS 1 TIMELINE b")
	const rest = client.ConnsDefault
	await.Until(t, "the connections of the owner", func() bool { return client.Reached(c, f.nodes[2].addr) == rest })
	before := f.nodes[2].count("PING")
	for range 20 {
		next(t, c.Timeline("a"))
		next(t, c.Timeline("b"))
	}
	if got := f.nodes[0].count("TS 1 TIMELINE") + f.nodes[1].count("TS 1 TIMELINE a") + f.nodes[1].count("TS 1 TIMELINE b"); got != other {
		t.Errorf("other nodes were asked %d times more", got-other)
	}
	if got := f.nodes[2].count("PING"); got != before || client.Reached(c, f.nodes[2].addr) != rest {
		t.Errorf("%d connections were opened to the owner, %d are open; want %d", got-before, client.Reached(c, f.nodes[2].addr), rest)
	}
}

// TestTimeline_HasAllFormsOfCalls.
func TestTimeline_HasAllFormsOfCalls(t *testing.T) {
	f := startCluster(t, 2)
	f.create(1, "a")
	c := f.dial(client.Options{Mode: isotone.ReadLease})
	ctx := within(t, 20*time.Second)
	a := c.Timeline("a")
	above := increasing(t)
	for range 3 {
		ts, err := a.Timestamp(ctx)
		above(ts, ts, err)
		r, err := a.In(isotone.ReadQuorum).Timestamps(ctx, 7)
		above(r.First, r.Last(), err)
		u, err := a.Timestamp64(ctx)
		above(u.Timestamp(), u.Timestamp(), err)
		us, err := a.In(isotone.ReadDefault).Timestamps64(ctx, 3)
		above(us.First.Timestamp(), us.Last().Timestamp(), err)
		future := a.TimestampAsync(ctx)
		ts, err = future.Wait()
		above(ts, ts, err)
		future64 := a.Timestamp64Async(ctx)
		u, err = future64.Wait()
		above(u.Timestamp(), u.Timestamp(), err)
		floor := u.Timestamp()
		floor.Index += 1000
		r, err = a.Above(floor).Timestamps(ctx, 2)
		above(r.First, r.Last(), err)
		floor = r.Last()
		floor.Index += 1000
		future = a.Above(floor).TimestampAsync(ctx)
		ts, err = future.Wait()
		above(ts, ts, err)
		if !floor.Before(ts) {
			t.Fatalf("%v with the floor %v", ts, floor)
		}
	}
	for _, want := range []string{"TS 1 LEASE ", "TS 7 QUORUM TIMELINE a", "TS64 1 LEASE TIMELINE a", "TS64 3 TIMELINE a", "TS 2 LEASE FLOOR "} {
		if f.nodes[1].count(want) < 2 {
			t.Errorf("%d requests %q", f.nodes[1].count(want), want)
		}
	}
	if _, err := a.In(9).Timestamp(ctx); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("mode 9: %v", err)
	}
	if _, err := a.Timestamps(ctx, 0); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("none: %v", err)
	}
}

// TestTimeline_UnknownAndSealedAreNotFound: at once, with the words of the node, and the connection is as good as before.
func TestTimeline_UnknownAndSealedAreNotFound(t *testing.T) {
	f := startCluster(t, 3)
	f.create(1, "a", "ended")
	f.lines["ended"].sealed = true
	c := f.dial(client.Options{Conns: 1, TraceParent: func(context.Context) string { return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }})
	for name, words := range map[string]string{"nothing": `there is no timeline "nothing"; create it`, "ended": `"ended" is sealed`} {
		for range 3 {
			_, err := c.Timeline(name).Above(isotone.Timestamp{Time: 1}).Timestamp(within(t, 20*time.Second))
			_, second := c.Timeline(name).Timestamp(within(t, 20*time.Second))
			for _, err := range []error{err, second} {
				if !errors.Is(err, isotone.ErrNotFound) || !strings.Contains(err.Error(), words) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	pings := f.nodes[1].count("PING")
	next(t, c.Timeline("a"))
	if f.nodes[1].count("PING") != pings || f.nodes[1].count("TS 1 TIMELINE a TRACEPARENT") != 1 {
		t.Errorf("%d connections more; commands %q", f.nodes[1].count("PING")-pings, f.nodes[1].commands("TS"))
	}
	f.create(2, "nothing") // an operator does as he is told
	next(t, c.Timeline("nothing"))
}

// TestTimeline_OlderNodesRefuseItAlone: the call fails at once. Other requests carry the floor and their traces as before.
func TestTimeline_OlderNodesRefuseItAlone(t *testing.T) {
	f := startCluster(t, 1)
	f.create(0, "a")
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-ERR wrong number of arguments for 'ts' command\r\n"), strings.Contains(strings.Join(args, " "), "TIMELINE old")
	})
	c := f.dial(client.Options{Conns: 1, TraceParent: func(context.Context) string { return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }})
	for range 3 {
		if _, err := c.Timeline("old").Above(isotone.Timestamp{Time: 1}).Timestamp(within(t, 20*time.Second)); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%v", err)
		}
	}
	if _, err := c.Timeline("a").Above(isotone.Timestamp{Time: 1}).Timestamp(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	asked := f.nodes[0].commands("TS ")
	if len(asked) != 4 || !strings.Contains(asked[3], " FLOOR ") || !strings.Contains(asked[3], " TRACEPARENT ") {
		t.Errorf("%q", asked)
	}
}

// TestTimeline_CallsDuringARequestShareTheNext, and never one that was sent before they began (I4).
func TestTimeline_CallsDuringARequestShareTheNext(t *testing.T) {
	f := startCluster(t, 2)
	f.create(1, "a", "b")
	c := f.dial(client.Options{Conns: 1})
	ctx := within(t, 20*time.Second)
	next(t, c.Timeline("a"))
	next(t, c.Timeline("b"))
	h := hold(f, f.nodes[1])
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = c.Timeline("a").Timestamp(ctx) })
	if got := receive(t, h.came); got != "[TS 1 TIMELINE a]" {
		t.Errorf("sent %s", got)
	}
	const later = 25
	var ranges [later]isotone.Range
	for i := range ranges {
		wg.Go(func() { ranges[i], _ = c.Timeline("a").Timestamps(ctx, uint64(i+1)) })
		await.Until(t, "it waits", func() bool { return client.Waiting(c) == uint64(i+1) })
	}
	wg.Go(func() { _, _ = c.Timeline("b").Timestamp(ctx) })
	await.Until(t, "all wait", func() bool { return client.Waiting(c) == later+1 })
	for _, want := range []string{fmt.Sprintf("[TS %d TIMELINE a]", later*(later+1)/2), "[TS 1 TIMELINE b]"} {
		h.next <- true
		if got := receive(t, h.came); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
	h.next <- true
	wg.Wait()
	for i, at := 0, uint64(3); i < later; i++ {
		if ranges[i].First.Index != at {
			t.Fatalf("call %d got %v, want index %d", i, ranges[i], at)
		}
		at += ranges[i].Count
	}
}

// TestTimeline_FloorsAreItsOwn: what undercuts what was received fails the call (I13), of this timeline alone; and the first request on each
// connection carries it.
func TestTimeline_FloorsAreItsOwn(t *testing.T) {
	f := startCluster(t, 2)
	f.create(1, "a", "b")
	var rejected atomic.Int32
	c := f.dial(client.Options{Conns: 1, Hooks: client.Hooks{Rejected: func(string, error) { rejected.Add(1) }}})
	a, b := c.Timeline("a"), c.Timeline("b")
	if _, err := a.Timestamps(within(t, 20*time.Second), 500); err != nil {
		t.Fatal(err)
	}
	if ts := next(t, b); ts.Index != 1 {
		t.Errorf("the other timeline: %v", ts)
	}
	if ts, err := c.Timestamps(within(t, 20*time.Second), 1); err != nil || ts.First.Index != 1 {
		t.Errorf("the default order: %v, %v", ts, err)
	}
	back := func() {
		f.change(func() { f.lines["a"].last = isotone.Timestamp{Time: 1}; f.lines["b"].last = isotone.Timestamp{Time: 1} })
	}
	back()
	if ts, err := a.Timestamp(within(t, 20*time.Second)); !errors.Is(err, isotone.ErrInternal) || !strings.Contains(err.Error(), "I13") || !strings.Contains(err.Error(), "timeline a") {
		t.Errorf("set back: %v, %v", ts, err)
	}
	if rejected.Load() != 1 {
		t.Errorf("the hook was called %d times", rejected.Load())
	}
	// That has cost the connection. The next one carries the floor of each.
	back()
	if ts := next(t, a); ts.Index != 501 {
		t.Errorf("a: %v", ts)
	}
	if ts := next(t, b); ts.Index != 2 {
		t.Errorf("b: %v", ts)
	}
	carried := len(floors(f.nodes[1]))
	for range 5 {
		next(t, a)
		next(t, b)
	}
	if n := len(floors(f.nodes[1])); n != carried || carried != 2 {
		t.Errorf("%d requests carried floors at first, %d later: %q", carried, n-carried, f.nodes[1].commands("TS"))
	}
}

// TestTimeline_NeedsNoLeader: refusals, redirects and the end of the leader cost a timeline of another node neither a connection nor a request.
func TestTimeline_NeedsNoLeader(t *testing.T) {
	for name, outage := range map[string]func(f *cluster){
		"no leader is known": func(f *cluster) { f.lead(-1) },
		"another one leads":  func(f *cluster) { f.lead(1) },
		"it is gone":         func(f *cluster) { f.nodes[0].stop() },
		"it is silent":       func(f *cluster) { f.nodes[0].freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			f := startCluster(t, 3)
			f.create(2, "a")
			c := f.dial(client.Options{})
			client.WaitForOwners(c, time.Minute) // on a busy machine
			a := c.Timeline("a")
			next(t, a)
			wantTimestamp(t, c)
			await.Until(t, "all connections", func() bool { return client.Reached(c, f.nodes[2].addr) == client.ConnsDefault })
			pings := f.nodes[2].count("PING")
			ofA := func() int { return len(timelineCommands(f.nodes[2], "a")) }
			asked := ofA()
			var work sync.WaitGroup
			defer work.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			outage(f)
			for range 5 {
				work.Go(func() {
					for ctx.Err() == nil {
						_, _ = one(ctx, c)
					}
				})
			}
			await.Until(t, "the client looks for a leader", func() bool {
				return f.nodes[2].count("CLUSTER") > 0 || name == "another one leads" && f.nodes[1].count("TS 1") > 5
			})
			for range 200 {
				next(t, a)
			}
			cancel()
			work.Wait()
			if got := ofA() - asked; got != 200 {
				t.Errorf("%d requests for 200 calls", got)
			}
			if got := f.nodes[2].count("PING") - pings; got != 0 {
				t.Errorf("%d new connections to the owner", got)
			}
		})
	}
}

// TestTimeline_FollowsItsOwner, in whatever way the one before ends.
func TestTimeline_FollowsItsOwner(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(n *node) }{
		"moved":   {func(*node) {}, func(*node) {}},
		"stopped": {(*node).stop, (*node).start},
		"frozen":  {(*node).freeze, (*node).thaw},
	} {
		t.Run(name, func(t *testing.T) {
			f := startCluster(t, 3)
			names := []string{"a", "b", "c"}
			f.create(0, names...)
			c := f.dial(client.Options{})
			last := map[string]isotone.Timestamp{}
			for round := range 4 {
				owner := (round + 1) % 3
				f.grant(owner, names...)
				for _, name := range names {
					if last[name] = next(t, c.Timeline(name)); last[name].Index != uint64(2*round+1) {
						t.Errorf("round %d, %s: %v", round, name, last[name])
					}
				}
				asked := func() int { return f.nodes[(owner+1)%3].count("TS 1 ") + f.nodes[(owner+2)%3].count("TS 1 ") } // nobody asks for the default order
				before := asked()
				fault.begin(f.nodes[owner])
				got := make(chan error, len(names))
				for _, name := range names {
					go func() {
						ts, err := c.Timeline(name).Timestamp(within(t, 20*time.Second))
						if err == nil && !last[name].Before(ts) {
							err = fmt.Errorf("%v after %v", ts, last[name])
						}
						got <- err
					}()
				}
				heir := (owner + 1) % 3
				if name != "moved" {
					// For a while the others name it still.
					await.Until(t, "others are asked", func() bool { return asked() > before })
				}
				f.grant(heir, names...)
				for range names {
					if err := await.Receive(t, "an answer", got); err != nil {
						t.Error(err)
					}
				}
				fault.end(f.nodes[owner])
			}
		})
	}
}

// TestTimeline_RedirectsInALoopArePaced, and so are refusals.
func TestTimeline_RedirectsInALoopArePaced(t *testing.T) {
	f := startCluster(t, 2)
	f.create(0, "a", "b")
	c := f.dial(client.Options{})
	next(t, c.Timeline("b"))
	for name, answers := range map[string][2]string{
		"a loop":  {"-MOVED 0 " + f.nodes[1].addr, "-MOVED 0 " + f.nodes[0].addr},
		"itself":  {"-MOVED 0 " + f.nodes[0].addr, "-MOVED 0 " + f.nodes[1].addr},
		"nobody":  {"-MOVED 0 127.0.0.1:1", "-MOVED 0 127.0.0.1:1"},
		"refused": {"-CLUSTERDOWN no leader", "-TRYAGAIN later"},
	} {
		var asked atomic.Int32
		for i, n := range f.nodes {
			n.replies(func(args []string) ([]byte, bool) {
				mine := args[0] == "TS" && strings.HasSuffix(strings.Join(args, " "), "TIMELINE a")
				if mine {
					asked.Add(1)
				}
				return []byte(answers[i] + "\r\n"), mine
			})
		}
		_, err := c.Timeline("a").Timestamp(within(t, 500*time.Millisecond))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, isotone.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if n := asked.Load(); n < 3 || n > 140 { // with pauses of at least 4 ms after the first few, it is fewer on any machine
			t.Errorf("%s: asked %d times", name, n)
		}
		next(t, c.Timeline("b")) // is not delayed
		for _, n := range f.nodes {
			n.replies(nil)
		}
		next(t, c.Timeline("a"))
	}
}

func TestTimeline_EndsWithItsClient(t *testing.T) {
	f := startCluster(t, 2)
	f.create(-1, "a")
	f.create(1, "b")
	c := f.dial(client.Options{})
	next(t, c.Timeline("b"))
	f.nodes[1].freeze()
	failed := make(chan error, 3)
	for _, name := range []string{"a", "b"} {
		go func() { _, err := c.Timeline(name).Timestamp(context.Background()); failed <- err }()
	}
	go func() {
		_, err := c.Timeline("b").Above(isotone.Timestamp{Time: 1}).Timestamp(context.Background())
		failed <- err
	}()
	await.Until(t, "requests", func() bool { return f.nodes[0].count("TS 1 TIMELINE a") > 0 && f.nodes[1].count("TS") > 1 })
	_ = c.Close()
	for range 3 {
		if err := receive(t, failed); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call that waited: %v", err)
		}
	}
	for _, name := range []string{"a", "b", "new"} {
		if _, err := c.Timeline(name).Timestamp(context.Background()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s, after the end: %v", name, err)
		}
	}
}

// TestTimeline_OfAClientThatIsRefusedFailsAtOnce, and recovers by itself.
func TestTimeline_OfAClientThatIsRefusedFailsAtOnce(t *testing.T) {
	f := startGuardedCluster(t, 2, "secret")
	f.create(1, "a")
	c := f.dial(client.Options{Lazy: true})
	for range 3 {
		if _, err := c.Timeline("a").Timestamp(context.Background()); !errors.Is(err, isotone.ErrUnauthorized) {
			t.Errorf("without credentials: %v", err)
		}
	}
	f.change(func() { f.secret = "" })
	await.Until(t, "a timestamp", func() bool { _, err := c.Timeline("a").Timestamp(context.Background()); return err == nil })
}

// TestTimeline_HooksNameIt.
func TestTimeline_HooksNameIt(t *testing.T) {
	f := startCluster(t, 2)
	f.create(1, "a")
	var notes notes
	c := f.dial(client.Options{Hooks: client.Hooks{
		Answered: func(a client.Answer) {
			notes.add("answered %s %q calls=%d count=%d", a.Addr, a.Timeline, a.Calls, a.Count)
		},
		Retried: func(addr string, err error) { notes.add("retried %s %v", addr, errors.Is(err, isotone.ErrNotLeader)) },
		Leader:  func(addr string) { notes.add("leader %s", addr) },
	}})
	client.WaitForOwners(c, time.Minute)
	a := c.Timeline("a")
	next(t, a)
	f.grant(0, "a")
	if _, err := a.Timestamps(within(t, 20*time.Second), 5); err != nil {
		t.Fatal(err)
	}
	wantTimestamp(t, c)
	text := strings.Join(notes.list(), "; ")
	leader, owner := f.nodes[0].addr, f.nodes[1].addr
	for _, want := range []string{"leader " + leader, "answered " + owner + ` "a" calls=1 count=1`, "answered " + leader + ` "a" calls=1 count=5`, "answered " + leader + ` "" calls=1 count=1`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not once in %s", want, text)
		}
	}
	if !strings.Contains(text, "retried "+owner+" true") { // again until the leader is connected
		t.Errorf("no redirect in %s", text)
	}
}
