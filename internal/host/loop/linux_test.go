//go:build linux && !portable

package loop_test

import (
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

// This file tests what only the poller for Linux promises: descriptors, memory, and a
// hot path that does not allocate.

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestLoop_LeavesNoDescriptors(t *testing.T) {
	before := descriptors(t)
	t.Run("use", func(t *testing.T) {
		h := newHost(t)
		for _, network := range []string{"tcp", "unix"} {
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = t.TempDir() + "/socket"
			}
			h.listen(listen(t, network, addr), loop.Limits{}, func(*loop.Conn) loop.Handler {
				return &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
					switch b[0] {
					case 'd':
						nc, err := c.Detach(b)
						if err != nil {
							t.Error(err)
						}
						nc.Close()
					case 'c':
						return 1, errTest
					}
					c.Write(b)
					return len(b), nil
				}}
			})
			for _, word := range []string{"detach", "close", "stay"} {
				c := h.dial()
				c.say(word)
				if word == "stay" {
					c.expect(word)
				}
			}
		}
		ours, theirs := pair(t, "tcp")
		newClient(t, theirs)
		h.do(func() {
			if _, err := h.loop.Attach(ours, nil, loop.Limits{}, &funcs{}); err != nil {
				t.Error(err)
			}
		})
		one, two := net.Pipe()
		defer one.Close()
		defer two.Close()
		h.do(func() {
			if _, err := h.loop.Attach(one, nil, loop.Limits{}, nil); err == nil {
				t.Error("attached what has no descriptor")
			}
		})
	})
	await.Until(t, "all descriptors are closed", func() bool { return descriptors(t) <= before })
}

// TestLoop_NoticesThatTheOtherSideHasVanished, also if nothing is sent and no timeout applies: the system asks.
func TestLoop_NoticesThatTheOtherSideHasVanished(t *testing.T) {
	h := newHost(t)
	h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(*loop.Conn) loop.Handler {
		return &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
			c.Write(b)
			return len(b), nil
		}}
	})
	c := h.dial()
	c.say("x")
	c.expect("x")
	fd := peerOf(t, c.LocalAddr().(*net.TCPAddr).Port)
	const most = 120
	var got [4]int
	for i, o := range [...][2]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}} {
		var err error
		if got[i], err = unix.GetsockoptInt(fd, o[0], o[1]); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != 1 || got[1]+got[2]*got[3] > most {
		t.Errorf("SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT are %v; want that the end is noticed within %d s", got, most)
	}
}

// peerOf returns the descriptor of this process that is connected to a port.
func peerOf(t *testing.T, port int) int {
	t.Helper()
	for fd := range 1 << 10 {
		if addr, err := unix.Getpeername(fd); err == nil {
			if tcp, ok := addr.(*unix.SockaddrInet4); ok && tcp.Port == port {
				return fd
			}
		}
	}
	t.Fatalf("nothing is connected to port %d", port)
	return -1
}

func TestLoop_WaitsWhenItIsOutOfDescriptors(t *testing.T) {
	var logged strings.Builder
	l, err := loop.New(slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ln := listen(t, "tcp", "127.0.0.1:0")
	opened := 0
	err = l.Listen(ln, loop.Limits{}, func(c *loop.Conn) loop.Handler { opened++; return &funcs{} })
	if err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 2; round++ { // a warning is not repeated
		nc, err := net.Dial("tcp", ln.Addr().String()) // the kernel accepts it
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		waitWithoutFiles(t, l)
		for end := time.Now().Add(patience); opened < round && time.Now().Before(end); {
			if err := l.Wait(time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := strings.Count(logged.String(), "cannot be accepted"); opened != 2 || n != 1 {
		t.Errorf("%d connections, %d warnings", opened, n)
	}
}

// waitWithoutFiles has l wait while the process can open no file.
func waitWithoutFiles(t *testing.T, l *loop.Loop) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 3, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	var err error
	began, turns := time.Now(), 0
	for ; time.Since(began) < 200*time.Millisecond && err == nil; turns++ {
		err = l.Wait(time.Second)
	}
	if restore := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); restore != nil || err != nil {
		t.Fatal(restore, err)
	}
	if turns > 20 {
		t.Errorf("%d turns in 200 ms", turns)
	}
}

// wired is a loop that serves one end of a socket pair; the test has the other.
type wired struct {
	*loop.Loop
	conn  *loop.Conn
	other int
}

func newWired(t testing.TB, limits loop.Limits, h loop.Handler) *wired {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	f := os.NewFile(uintptr(fds[0]), "")
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Attach(nc, nil, limits, h)
	if err != nil {
		t.Fatal(err)
	}
	return &wired{Loop: l, conn: c, other: fds[1]}
}

// say writes b from the other side, then there is a turn.
func (w *wired) say(t testing.TB, b []byte) {
	if _, err := unix.Write(w.other, b); err != nil {
		t.Fatal(err)
	}
	w.turn(t)
}

func (w *wired) turn(t testing.TB) {
	if err := w.Wait(time.Second); err != nil {
		t.Fatal(err)
	}
	w.Flush()
}

// hear reads n bytes at the other side.
func (w *wired) hear(t testing.TB, b []byte, n int) {
	for n > 0 {
		got, err := unix.Read(w.other, b[:n])
		if err != nil || got == 0 {
			t.Fatal(got, err)
		}
		n -= got
	}
}

func TestLoop_HotPathDoesNotAllocate(t *testing.T) {
	answer := make([]byte, 3000)
	buf := make([]byte, 1<<20)
	none := func(t testing.TB, turn func()) {
		t.Helper()
		for range 10 {
			turn()
		}
		if n := testing.AllocsPerRun(1000, turn); n != 0 {
			t.Errorf("%v allocations in a turn", n)
		}
	}
	t.Run("an echo", func(t *testing.T) {
		w := newWired(t, loop.Limits{}, &funcs{data: echo})
		none(t, func() { w.say(t, answer[:100]); w.hear(t, buf, 100) })
	})
	t.Run("an answer that is appended", func(t *testing.T) {
		w := newWired(t, loop.Limits{}, &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
			c.SetBuffered(append(c.Buffered(), answer...))
			return len(b), nil
		}})
		none(t, func() { w.say(t, answer[:100]); w.hear(t, buf, len(answer)) })
	})
	t.Run("requests that come in two parts", func(t *testing.T) {
		w := newWired(t, loop.Limits{}, &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
			if len(b) < 200 {
				return 0, nil
			}
			c.Write(answer)
			return 200, nil
		}})
		none(t, func() { w.say(t, answer[:150]); w.say(t, answer[:50]); w.hear(t, buf, len(answer)) })
	})
	t.Run("pipelined requests that wait for their answers", func(t *testing.T) {
		w := newWired(t, loop.Limits{}, &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
			c.Pause()
			return 100, nil
		}})
		none(t, func() {
			w.say(t, answer[:300])
			for range 3 {
				w.conn.Write(answer[:10])
				w.conn.Resume()
				w.Wake() // for the last one nothing is left
				w.turn(t)
			}
			w.hear(t, buf, 30)
		})
	})
	t.Run("a wake-up", func(t *testing.T) {
		w := newWired(t, loop.Limits{}, &funcs{})
		none(t, func() { w.Wake(); w.turn(t) })
	})
}

// TestLoop_IdleConnectionsAreSmall: it is what ten thousand clients cost that say
// something now and then.
func TestLoop_IdleConnectionsAreSmall(t *testing.T) {
	const count = 2000
	h := newHost(t)
	handler := &funcs{data: lines}
	h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(*loop.Conn) loop.Handler { return handler })
	port := h.addr.(*net.TCPAddr).Port

	before := heap()
	fds := make([]int, count)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	buf := make([]byte, 20_000)
	for i := range fds {
		var err error
		// Not with net: what its connections take must not count.
		if fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		addr := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.Connect(fds[i], addr); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a long answer, then a short one in two parts
		for _, fd := range fds {
			_, err := unix.Write(fd, append(buf[:len(buf)-1], '\n'))
			for n := 0; n < len(buf) && err == nil; {
				var got int
				got, err = unix.Read(fd, buf[n:])
				n += got
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		buf = buf[:100]
	}
	h.pass(loop.SweepEvery)
	h.pass(loop.SweepEvery)
	h.settle()
	if n := h.conns(); n != count {
		t.Fatalf("%d connections", n)
	}
	each := (heap() - before) / count
	t.Logf("%d bytes for each connection", each)
	if each > 1024 {
		t.Errorf("%d bytes for each connection", each)
	}
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A loop that keeps its processor sleeps in a system call that Go knows nothing of. The
// world must stop all the same: a collection takes microseconds here, and would take the
// whole sleep if the loop were not woken for it.
func TestLoop_ThatKeepsItsProcessorDoesNotHoldUpTheCollector(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	l.KeepProcessor()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if err := l.Wait(time.Second); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	began := time.Now()
	const collections = 20
	for range collections {
		runtime.GC()
	}
	if took := time.Since(began); took > collections*time.Second/2 {
		t.Errorf("%d collections took %v", collections, took)
	}
	close(stop)
	l.Wake()
	<-done
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLoop_WaitForWakeEndsByWakeOrTimeAndNotByConnections(t *testing.T) {
	l, err := loop.New(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	took := func(d time.Duration) time.Duration {
		before := time.Now()
		if !l.WaitForWake(d) {
			t.Fatal("WaitForWake is not supported")
		}
		return time.Since(before)
	}
	const long, short = time.Minute, time.Millisecond
	if d := took(short); d < short {
		t.Errorf("it woke by itself after %v, not after %v", d, short)
	}
	l.Wake()
	if d := took(long); d >= long {
		t.Error("a Wake before does not count")
	}
	for range 100 {
		woken := make(chan struct{})
		go func() { defer close(woken); l.Wake() }()
		if d := took(long); d >= long {
			t.Fatal("a Wake does not end it")
		}
		<-woken
		if err := l.Wait(0); err != nil { // a Wake that came late is used up
			t.Fatal(err)
		}
	}
}
