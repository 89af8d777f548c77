package loop_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

func TestLoop_ClosesWhoKeepsItWaiting(t *testing.T) {
	limits := loop.Limits{PartialTimeout: 10 * time.Second, IdleTimeout: 60 * time.Second, WriteTimeout: 20 * time.Second}
	much := func(c *loop.Conn, b []byte) (int, error) { c.Write(make([]byte, more)); return len(b), nil }
	pause := func(c *loop.Conn, b []byte) (int, error) { c.Pause(); return 1, nil }
	say := func(words ...string) func(*host, *client) {
		return func(h *host, c *client) {
			for i, w := range words {
				if i > 0 {
					h.pass(7 * time.Second)
				}
				c.say(w)
				h.settle()
			}
		}
	}
	for _, tt := range []struct {
		name  string
		data  func(c *loop.Conn, b []byte) (int, error)
		do    func(h *host, c *client)
		after time.Duration // that it is closed, and not before; 0: never
		want  error
	}{
		{"says nothing", lines, say(), 10 * time.Second, loop.ErrPartialTimeout},
		{"says half", lines, say("abc"), 10 * time.Second, loop.ErrPartialTimeout},
		{"says half, bit by bit", lines, say("a", "b"), 3 * time.Second, loop.ErrPartialTimeout},
		{"says more than half, bit by bit", lines, say("a", "b\nc"), 10 * time.Second, loop.ErrPartialTimeout},
		{"says half after a whole", lines, say("a\n", "b"), 10 * time.Second, loop.ErrPartialTimeout},
		{"falls silent", lines, say("a\n", "a\n"), 60 * time.Second, loop.ErrIdleTimeout},
		{"does not read", much, say("a"), 20 * time.Second, loop.ErrWriteTimeout},
		{"waits for its answer", pause, say("ab"), 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := serve(t, limits, tt.data)
			c := h.dial()
			await.Receive(t, "the connection", h.opened)
			tt.do(h, c)
			if tt.after == 0 {
				h.pass(time.Hour)
				h.pass(time.Hour)
				if h.conns() != 1 {
					t.Error("it is closed")
				}
				return
			}
			h.pass(tt.after)
			if h.conns() != 1 {
				t.Fatal("it is closed too early")
			}
			// Soon after. What it has not read may have moved on meanwhile by itself, from
			// one buffer of the kernel to the next, so there is some slack.
			for waited := time.Duration(0); h.conns() > 0 && waited < 2*tt.after; waited += loop.SweepEvery {
				h.pass(loop.SweepEvery)
			}
			if err := await.Receive(t, "Closed", h.closed); err != tt.want {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

func TestLoop_LetsAnAnswerBeReadSlowly(t *testing.T) {
	limits := loop.Limits{IdleTimeout: 30 * time.Second, WriteTimeout: 20 * time.Second}
	var conn *loop.Conn // belongs to the loop
	h := serve(t, limits, func(c *loop.Conn, b []byte) (int, error) {
		conn = c
		c.Write(make([]byte, more))
		return 1, nil
	})
	c := h.dial()
	if err := c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil { // the kernel is not to take it all early
		t.Fatal(err)
	}
	c.say("a")
	await.Until(t, "the answer is held up", func() (stuck bool) {
		h.do(func() { stuck = conn != nil && loop.IsStuckSince(conn, 1) })
		return stuck
	})
	for range 4 {
		h.pass(15 * time.Second)
		c.expect(string(make([]byte, more/4)))
		await.Until(t, "more was taken", func() (taken bool) {
			h.do(func() { taken = !loop.IsStuckSince(conn, time.Duration(h.clock.Load())) })
			return taken
		})
	}
	h.pass(loop.SweepEvery)
	if h.conns() != 1 {
		t.Fatal("it is closed")
	}
	c.say("a")
	c.expect(string(make([]byte, more)))
}

func TestLoop_SweepsAllInPortions(t *testing.T) {
	h := serve(t, loop.Limits{IdleTimeout: time.Minute}, echo)
	const count = loop.SweepBatch + 100
	for i := range count {
		c := h.dial()
		await.Receive(t, "the connection", h.opened)
		c.say("x")
		c.expect("x")
		if i == count-2 {
			h.pass(30 * time.Second) // the last one stays
		}
	}
	h.pass(31 * time.Second)
	for range count - 1 {
		if err := await.Receive(t, "Closed", h.closed); err != loop.ErrIdleTimeout {
			t.Fatal(err)
		}
	}
	if n := h.conns(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestLoop_ReadsOnceInATurn(t *testing.T) {
	h := newHost(t)
	reads := map[int64]int{} // by turn
	handler := &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
		reads[h.turns.Load()]++
		c.Write(b)
		return len(b), nil
	}}
	h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(*loop.Conn) loop.Handler { return handler })
	c := h.dial()
	go io.WriteString(c, strings.Repeat("x", more))
	c.expect(strings.Repeat("x", more))
	h.do(func() {
		for turn, n := range reads {
			if n > 1 {
				t.Errorf("%d reads in turn %d", n, turn)
			}
		}
	})
}

func TestLoop_WakeEndsAWait(t *testing.T) {
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waits := make(chan error)
	stop := make(chan struct{})
	go func() {
		defer close(waits)
		for {
			// It returns after a second at the latest: see the time that it all takes.
			err := l.Wait(time.Hour)
			select {
			case waits <- err:
			case <-stop:
				return
			}
		}
	}()
	began := time.Now()
	for range 1000 {
		l.Wake()
		if err := await.Receive(t, "Wait", waits); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > patience {
		t.Errorf("1000 wake-ups took %v", took)
	}
	close(stop)
	l.Wake()
	for range waits { // until it has ended
	}
}

func TestLoop_WakeBeforeWaitCounts(t *testing.T) {
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	soonest := time.Hour // a busy machine makes some late
	for range 5 {
		l.Wake()
		l.Wake()
		began := time.Now()
		if err := l.Wait(time.Hour); err != nil {
			t.Fatal(err)
		}
		soonest = min(soonest, time.Since(began))
	}
	if soonest > loop.SweepEvery/2 {
		t.Errorf("Wait took %v", soonest)
	}
	if err := l.Wait(-time.Hour); err != nil {
		t.Fatal(err)
	}
}

func TestLoop_WakeMayRaceWithClose(t *testing.T) {
	for range 20 {
		l, err := loop.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var wakers sync.WaitGroup
		for range 4 {
			wakers.Go(func() {
				for range 1000 {
					l.Wake()
				}
			})
		}
		for range 10 {
			if err := l.Wait(time.Millisecond); err != nil {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wakers.Wait()
	}
}

func TestLoop_StopListeningClosesThePort(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		h := newHost(t)
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = t.TempDir() + "/socket"
		}
		h.listen(listen(t, network, addr), loop.Limits{}, func(*loop.Conn) loop.Handler { return &funcs{data: echo} })
		addr = h.addr.String()
		c := h.dial()
		c.say("a")
		c.expect("a")
		h.do(h.loop.StopListening)
		if nc, err := net.Dial(network, addr); err == nil {
			nc.Close()
			t.Error(network, "still listens")
		}
		h.do(h.loop.StopListening)
		c.say("b") // connections stay
		c.expect("b")
		h.listen(listen(t, network, addr), loop.Limits{}, func(*loop.Conn) loop.Handler { return &funcs{data: echo} })
		c = h.dial()
		c.say("c")
		c.expect("c")
	}
}

func TestLoop_ServesSeveralListeners(t *testing.T) {
	h := newHost(t)
	var clients []*client
	for _, name := range []string{"a", "b", "c"} {
		h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(c *loop.Conn) loop.Handler {
			c.Write([]byte(name))
			return &funcs{data: echo}
		})
		clients = append(clients, h.dial())
	}
	for i, name := range []string{"a", "b", "c"} {
		clients[i].say(name)
		clients[i].expect(name + name)
	}
}

func TestLoop_NowIsTheTimeOfTheTurn(t *testing.T) {
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := l.Now()
	time.Sleep(time.Millisecond)
	if l.Now() != before {
		t.Error("time passes between the turns")
	}
	if err := l.Wait(0); err != nil || l.Now() < before+time.Millisecond {
		t.Errorf("%v after %v, %v", l.Now(), before, err)
	}
}

func TestLoop_PanicsWithinItself(t *testing.T) {
	h := serve(t, loop.Limits{}, nil)
	caught := make(chan any, 1)
	h.do(func() {})
	c := h.dial()
	conn := await.Receive(t, "the connection", h.opened)
	h.do(func() {
		conn.SetHandler(&funcs{data: func(c *loop.Conn, b []byte) (int, error) {
			defer func() { caught <- recover() }()
			h.loop.Flush()
			return 0, nil
		}})
	})
	c.say("x")
	if await.Receive(t, "Data", caught) == nil {
		t.Error("Flush within Wait went well")
	}
}
