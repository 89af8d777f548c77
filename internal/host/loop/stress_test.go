package loop_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

var (
	stressSeed    = flag.Uint64("loop.seed", 0, "seed of the stress test; 0: a new one")
	stressClients = flag.Int("loop.clients", 100, "clients of the stress test")
)

// TestLoop_EveryClientGetsItsBytes has many clients do what clients do: say things in
// pieces, many at once, read slowly, shut down, cut the connection. The handlers answer
// at once or some turns later, and hand some connections on. Whoever waits for all of
// its answers must get exactly these.
func TestLoop_EveryClientGetsItsBytes(t *testing.T) {
	seed := *stressSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	defer func() {
		if t.Failed() {
			t.Logf("go test -run %s -args -loop.seed=%d -loop.clients=%d", t.Name(), seed, *stressClients)
		}
	}()
	s := &stress{T: t, random: rand.New(rand.NewPCG(seed, 0)), open: map[*stressed]bool{}}
	s.run()
	var clients sync.WaitGroup
	for i := range *stressClients {
		clients.Go(func() {
			if err := s.client(rand.New(rand.NewPCG(seed, uint64(i+1)))); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	clients.Wait()
	await.Until(t, "all connections are gone", func() bool { return s.host.conns() == 0 })
	s.host.do(func() {
		if len(s.open) != 0 {
			t.Errorf("%d handlers were not told", len(s.open))
		}
	})
	s.owners.Wait()
}

// stress is the serving side. All but owners belongs to the loop's goroutine.
type stress struct {
	*testing.T
	host    *host
	random  *rand.Rand
	open    map[*stressed]bool
	waiting []*stressed
	owners  sync.WaitGroup // of detached connections
}

func (s *stress) run() {
	l, err := loop.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	h := &host{TB: s, loop: l, calls: make(chan func()), ended: make(chan struct{})}
	s.host = h
	limits := loop.Limits{UnreadMax: 10_000, OutputMax: 20_000}
	ln := listen(s, "tcp", "127.0.0.1:0")
	h.addr = ln.Addr()
	if err := l.Listen(ln, limits, s.accept); err != nil {
		s.Fatal(err)
	}
	go func() {
		defer close(h.ended)
		for l.Wait(time.Second) == nil {
			select {
			case f := <-h.calls:
				f()
			default:
			}
			s.answer()
			l.Flush()
		}
	}()
	s.Cleanup(h.stop)
}

// answer answers what has waited for long enough.
func (s *stress) answer() {
	later := s.waiting[:0]
	for _, c := range s.waiting {
		if c.turns--; c.turns > 0 && !c.gone {
			later = append(later, c)
			continue
		}
		c.conn.SetBuffered(append(c.conn.Buffered(), c.answers...))
		c.answers = nil
		c.conn.Resume()
	}
	if s.waiting = later; len(later) > 0 {
		s.host.loop.Wake()
	}
}

func (s *stress) accept(c *loop.Conn) loop.Handler {
	h := &stressed{stress: s, conn: c}
	s.open[h] = true
	return h
}

// stressed is the handler of one connection.
type stressed struct {
	stress  *stress
	conn    *loop.Conn
	answers []byte // for what it waits
	turns   int    // until they are given
	gone    bool
}

func (h *stressed) Data(c *loop.Conn, b []byte) (used int, err error) {
	s := h.stress
	if h.gone || c != h.conn || c.Paused() || c.Choked() || len(b) == 0 || len(b) > 10_000 {
		s.Errorf("Data with %d bytes: gone %v, paused %v, choked %v", len(b), h.gone, c.Paused(), c.Choked())
	}
	later := s.random.IntN(3)
	for !c.Choked() && len(h.answers) < 20_000 {
		i := bytes.IndexByte(b[used:], '\n')
		if i < 0 {
			break
		}
		line := b[used : used+i+1]
		if line[0] == 'd' && len(h.answers) == 0 {
			h.detach(b[used:])
			return 0, nil
		}
		if line[0] == 'd' && later > 0 {
			break
		}
		used += i + 1
		if later > 0 {
			h.answers = append(h.answers, answerTo(line)...)
		} else {
			c.Write(answerTo(line))
		}
	}
	if len(h.answers) > 0 {
		c.Pause()
		h.turns = later
		s.waiting = append(s.waiting, h)
		s.host.loop.Wake()
	}
	return used, nil
}

func (h *stressed) Closed(*loop.Conn, error) {
	if h.gone {
		h.stress.Error("told twice")
	}
	h.gone = true
	delete(h.stress.open, h)
}

// detach has a goroutine go on.
func (h *stressed) detach(unread []byte) {
	nc, err := h.conn.Detach(unread)
	if err != nil {
		h.stress.Error(err)
		return
	}
	h.gone = true
	delete(h.stress.open, h)
	h.stress.owners.Go(func() {
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		r := bufio.NewReader(nc)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if _, err := nc.Write(answerTo(line)); err != nil {
				return
			}
		}
	})
}

// answerTo is what a line is answered with; its last digit says how often it is said.
func answerTo(line []byte) []byte {
	return bytes.Repeat(bytes.ToUpper(line), 1+int(line[len(line)-2]-'0'))
}

// client plays one client, in one of the ways that clients end.
func (s *stress) client(r *rand.Rand) error {
	nc, err := net.Dial("tcp", s.host.addr.String())
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	var asked, want []byte
	detach := -1
	if r.IntN(8) == 0 {
		detach = r.IntN(200)
	}
	for i := range r.IntN(400) {
		line := bytes.Repeat([]byte{byte('k' + i%10)}, r.IntN(1<<r.IntN(12)))
		if i == detach {
			line = []byte("d") // which no other begins with
		}
		line = append(line, fmt.Sprintf(" %d %d\n", i, r.IntN(10))...)
		asked = append(asked, line...)
		want = append(want, answerTo(line)...)
	}
	switch r.IntN(4) {
	case 0: // cut it, when some is said and some is read
		go say(nc, asked[:r.IntN(len(asked)+1)])
		_ = nc.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(100)) * time.Millisecond))
		_, _ = io.CopyN(io.Discard, nc, int64(r.IntN(len(want)+1)))
		if r.IntN(2) == 0 {
			_ = nc.(*net.TCPConn).SetLinger(0)
		}
		return nil
	case 1: // say all before reading anything, as far as the other side lets it
		said := make(chan error, 1)
		go func() {
			if err := say(nc, asked); err != nil {
				said <- err
			} else {
				said <- nc.(*net.TCPConn).CloseWrite()
			}
		}()
		time.Sleep(time.Duration(len(asked)%50) * time.Millisecond)
		got, err := io.ReadAll(nc)
		return errors.Join(<-said, err, differ(got, want))
	default: // read slowly meanwhile
		said := make(chan error, 1)
		size := 1 + r.IntN(1<<(6+r.IntN(12)))
		go func() { said <- say(nc, asked) }()
		got := make([]byte, 0, len(want))
		for len(got) < len(want) {
			n, err := nc.Read(got[len(got):min(len(want), len(got)+size)])
			if got = got[:len(got)+n]; err != nil {
				return errors.Join(err, differ(got, want))
			}
		}
		return errors.Join(<-said, differ(got, want))
	}
}

// say writes b in pieces.
func say(nc net.Conn, b []byte) error {
	r := rand.New(rand.NewPCG(uint64(len(b)), 0))
	for len(b) > 0 {
		n := min(len(b), 1+r.IntN(1<<r.IntN(18)))
		if _, err := nc.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func differ(got, want []byte) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d differs", i, len(want))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("got %d bytes of %d", len(got), len(want))
	}
	return nil
}
