//go:build linux

package verify_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// This binary is also the driver, and each node, of a system of these tests: counters that answer a line with a count
// by a line with a number. ISOTONE_TEST_VERIFY says what it is to be, and of which kind.
const role = "ISOTONE_TEST_VERIFY"

// The kinds of counters.
const (
	right    = "right"    // one counter for all nodes, in a file
	electing = "electing" // the same, but each second time a member cannot be removed, or added
	truthful = "truthful" // no counter: each node says when it is, give or take a millisecond
	lying    = "lying"    // the same, but each is off by more than it says
	amnesiac = "amnesiac" // in memory
	ahead    = "ahead"    // each node takes a hundred numbers from the file at a time
	garbled  = "garbled"  // now and then an answer is no number
	still    = "still"    // ends at once
	deserted = "deserted" // right, but its driver ends after a while
	mortal   = "mortal"   // right, and each node ends after a thousand answers
	trusting = "trusting" // the wall clock in milliseconds, with a count in each
	refusing = "refusing" // the same; it does not answer while the clock is behind its latest answer
)

func TestMain(m *testing.M) {
	what, kind, _ := strings.Cut(os.Getenv(role), ":")
	var err error
	switch what {
	case "":
		os.Exit(m.Run())
	case "driver":
		err = driver.Serve(os.Stdin, os.Stdout, &counters{kind: kind})
	case "node":
		err = serveCounter(kind, os.Args[1], os.Args[2])
	case "harness":
		err = harness(kind)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// driverOf returns the command line of the driver of a kind of counters.
func driverOf(t testing.TB, kind string) []string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"env", role + "=driver:" + kind, self}
}

// serveCounter is a node.
func serveCounter(kind, address, path string) error {
	if slices.Contains(os.Args, joined) {
		fmt.Println(joined)
	}
	if kind == still {
		return fmt.Errorf("this node does not want to run")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	c := &counter{kind: kind, path: path, next: 1}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go c.serve(conn)
	}
}

type counter struct {
	kind, path string

	mu          sync.Mutex
	next, limit uint64
	millisecond uint64 // of the latest answer
	answers     int
}

func (c *counter) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		count, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			return
		}
		answer, err := c.take(count)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return
		}
	}
}

func (c *counter) take(count uint64) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers++
	if c.kind == truthful || c.kind == lying {
		return strconv.FormatInt(driver.Now(), 10), nil
	}
	if c.kind == garbled && c.answers%100 == 0 {
		return "soon", nil
	}
	if c.kind == mortal && c.answers > 1000 {
		os.Exit(1)
	}
	if c.kind == trusting || c.kind == refusing {
		return c.fromClock(count)
	}
	take := count
	if c.kind == ahead {
		take += 100
	}
	if c.kind != amnesiac && c.next+count > c.limit {
		next, err := fromFile(c.path, take)
		if err != nil {
			return "", err
		}
		c.next, c.limit = next, next+take
	}
	first := c.next
	c.next += count
	return strconv.FormatUint(first, 10), nil
}

// fromClock takes numbers that begin with the time.
func (c *counter) fromClock(count uint64) (string, error) {
	const bits = 20
	now := uint64(time.Now().UnixMilli())
	if now < c.millisecond && c.kind == refusing {
		return "", fmt.Errorf("the clock is behind by %d ms", c.millisecond-now)
	}
	if now != c.millisecond {
		c.millisecond, c.next = now, 0
	}
	first := c.millisecond<<bits + c.next
	c.next += count
	return strconv.FormatUint(first, 10), nil
}

// fromFile takes numbers from the counter in a file, which is never seen half written: it has one byte for each number.
func fromFile(path string, count uint64) (first uint64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for err = syscall.EINTR; err == syscall.EINTR; { // the runtime interrupts threads
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	return uint64(size) + 1, f.Truncate(size + int64(count))
}

// counters is the driver.
type counters struct {
	kind  string
	addrs []string
	asks  atomic.Int64
	steps atomic.Int64 // tries to change members

	mu    sync.Mutex
	conns map[string][]*line // idle, by address
}

type line struct {
	net.Conn
	read *bufio.Reader
}

func (s *counters) Hello(map[string]string) (driver.Hello, error) {
	h := driver.Hello{
		Protocol: driver.Protocol, System: "counter", Version: s.kind, Promises: "real-time", CountMax: 10, TimesMax: 16, Nodes: 3, NodesMax: 5, Ports: 1,
		Members: s.kind == right || s.kind == electing,
	}
	if s.kind == truthful || s.kind == lying {
		h.Promises, h.CountMax = driver.Intervals, 1
	}
	return h, nil
}

func (s *counters) Plan(where driver.PlanRequest, _ map[string]string) (plan driver.Plan, err error) {
	self, err := os.Executable()
	for _, spot := range where.Nodes {
		address := net.JoinHostPort(spot.Host, strconv.Itoa(spot.Ports[0]))
		plan.Nodes = append(plan.Nodes, driver.NodeCommand{Address: address, Command: driver.Command{
			Command: []string{self, address, filepath.Join(where.Dir, "counter")}, Env: []string{role + "=node:" + s.kind},
		}})
	}
	return plan, err
}

func (s *counters) Connect(addresses []string, _ map[string]string) error {
	s.addrs, s.conns = addresses, map[string][]*line{}
	return nil
}

func (s *counters) Ready(node int, deadline time.Time) error {
	l, err := s.dial(s.addrs[node], deadline)
	if err == nil {
		_ = l.Close()
	}
	return err
}

// joined is what a node prints that was started as a member that was added.
const joined = "this node has joined"

// Remove does nothing, as a node knows of no other.
func (s *counters) Remove(int, driver.Command, time.Time) error { return s.change() }

func (s *counters) Add(_ int, start driver.Command, _ time.Time) (driver.Command, error) {
	start.Command = append(slices.Clone(start.Command), joined)
	return start, s.change()
}

// change tries to change the members.
func (s *counters) change() error {
	if s.steps.Add(1)%2 == 1 && s.kind == electing {
		return driver.Errorf(driver.Unavailable, "no leader is known")
	}
	return nil
}

func (s *counters) dial(addr string, deadline time.Time) (*line, error) {
	if l := s.idle(addr); l != nil {
		return l, nil
	}
	c, err := net.DialTimeout("tcp", addr, time.Until(deadline))
	if err != nil {
		return nil, err
	}
	return &line{c, bufio.NewReader(c)}, nil
}

// idle returns a connection that nobody uses, or nil.
func (s *counters) idle(addr string) (l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.conns[addr]); n > 0 {
		l, s.conns[addr] = s.conns[addr][n-1], s.conns[addr][:n-1]
	}
	return l
}

// asksMax is how often such a driver asks.
const asksMax = 500

// AskInterval reads the clock of a node.
func (s *counters) AskInterval(node int, deadline time.Time) (earliest, latest isotone.Timestamp, err error) {
	now, err := s.Ask(node, 1, deadline)
	if s.kind == lying {
		now.Index += uint64(node * 10 * int(time.Millisecond))
	}
	earliest.Index, latest.Index = now.Index-uint64(time.Millisecond), now.Index+uint64(time.Millisecond)
	return earliest, latest, err
}

func (s *counters) Ask(node int, count uint64, deadline time.Time) (first isotone.Timestamp, err error) {
	if s.kind == deserted && s.asks.Add(1) > asksMax {
		os.Exit(3)
	}
	addr := s.addrs[node]
	l, err := s.dial(addr, deadline)
	if err != nil {
		return first, err
	}
	_ = l.SetDeadline(deadline)
	var answer string
	if _, err = fmt.Fprintln(l, count); err == nil {
		answer, err = l.read.ReadString('\n')
	}
	if err != nil {
		_ = l.Close()
		return first, err
	}
	s.mu.Lock()
	s.conns[addr] = append(s.conns[addr], l)
	s.mu.Unlock()
	return driver.ParseNumber(strings.TrimSpace(answer))
}

func (s *counters) Close() {
	for _, idle := range s.conns {
		for _, l := range idle {
			_ = l.Close()
		}
	}
}
