package client_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/snowflake"
)

func TestMain(m *testing.M) {
	// A cluster for the examples, which have no testing.T.
	f, end := newCluster(3)
	nodes = f.addrs()
	goleak.VerifyTestMain(ended{parallel.Tests{M: m, N: 6}, end})
}

// ended is a goleak.TestingM that cleans up before goleak checks the goroutines.
type ended struct {
	m   parallel.Tests
	end func()
}

func (e ended) Run() int {
	defer e.end()
	return e.m.Run()
}

// cluster simulates nodes with the Redis protocol that share one oracle.
type cluster struct {
	t     testing.TB
	nodes []*node
	// listen makes a node's listener; addr is "" for the first time.
	listen func(addr string) (net.Listener, error)

	mu     sync.Mutex
	id     string // as in INFO; "none" simulates an older version
	leader int    // an index of nodes; -1: none
	gone   []int  // indexes of nodes that are no members any more
	last   isotone.Timestamp
	old    bool // older versions do not know FLOOR
	// untraced: versions in between do not know TRACEPARENT.
	untraced bool
	no64     bool                 // versions after that do not know TS64
	secret   string               // of everybody; "": nodes want none
	guard    uint64               // the largest index of a floor; 0: any
	lines    map[string]*fakeLine // by name
	ids      int64
	leases   map[string]*lease // by session
	clock    fakeClock
}

type lease struct {
	worker     int
	start, end int64
	revoked    bool
	released   bool
}

func tcp(addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	return net.Listen("tcp", addr)
}

const fakeID isotone.ClusterID = 0xfa4e

// startCluster starts nodes, the first of which leads.
func startCluster(t testing.TB, count int) *cluster { return startClusterOn(t, count, tcp) }

func startClusterOn(t testing.TB, count int, listen func(string) (net.Listener, error)) *cluster {
	t.Helper()
	c, end := newClusterOn(count, listen)
	c.t = t
	t.Cleanup(end)
	return c
}

func newCluster(count int) (*cluster, func()) { return newClusterOn(count, tcp) }

func newClusterOn(count int, listen func(string) (net.Listener, error)) (c *cluster, end func()) {
	c = &cluster{listen: listen, id: fakeID.String(), leases: map[string]*lease{}, last: isotone.Timestamp{Time: 1}}
	for range count {
		c.add()
	}
	return c, func() {
		for _, n := range c.nodes {
			n.thaw()
			n.stop()
		}
	}
}

// add starts another node.
func (c *cluster) add() {
	n := &node{cluster: c, index: len(c.nodes), thawed: make(chan struct{})}
	close(n.thawed)
	n.start()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
}

// remove stops nodes, which are no members any more.
func (c *cluster) remove(indexes ...int) {
	c.mu.Lock()
	c.gone = append(c.gone, indexes...)
	c.mu.Unlock()
	for _, i := range indexes {
		c.nodes[i].stop()
	}
}

func (c *cluster) addrs() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.addr)
	}
	return list
}

func (c *cluster) lead(index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = index
}

// dial returns a client of all nodes, which ends with the test.
func (c *cluster) dial(o client.Options) *client.Client {
	c.t.Helper()
	if len(o.Addrs) == 0 {
		o.Addrs = c.addrs()
	}
	got, err := client.NewWith(within(c.t, 10*time.Second), o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = got.Close() })
	return got
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func (c *cluster) answer(index int, args []string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch strings.Join(args[:min(2, len(args))], " ") {
	case "PING":
		return []byte("+PONG\r\n")
	case "INFO cluster":
		return info(c.id)
	case "CLUSTER SLOTS":
		return c.slots()
	case "WORKER LEASE", "WORKER RELEASE":
		return c.worker(index, args)
	}
	if args[0] == "ORACLE" {
		return c.oracle(index, args)
	}
	if at := slices.Index(args, "TIMELINE"); at > 0 {
		return c.timeline(index, args, at)
	}
	switch c.known(args[0]) {
	case "TS", "TS64":
		if fault := c.refuse(index); fault != nil {
			return fault
		}
		count, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return []byte("-ERR count\r\n")
		}
		if fault := c.pass(args[2:]); fault != nil {
			return fault
		}
		if args[0] == "TS64" {
			first := isotone.Timestamp64From(isotone.Timestamp{Time: c.last.Time, Index: c.last.Index + 1})
			c.last = (first + isotone.Timestamp64(count-1)).Timestamp()
			return fmt.Appendf(nil, "$%d\r\n%v\r\n", len(first.String()), first)
		}
		first := isotone.Timestamp{Time: c.last.Time, Index: c.last.Index + 1}
		c.last.Index += count
		return stamp(first)
	case "SNOWFLAKE":
		return c.snowflakes(index, args)
	case "INTERVAL":
		return c.interval(index, args)
	}
	return []byte("-ERR unknown command\r\n")
}

func info(id string) []byte {
	text := "# Cluster\r\ncluster_enabled:1\r\nisotone_cluster_id:" + id + "\r\n"
	if id == "none" {
		text = "# Cluster\r\ncluster_enabled:1\r\n"
	}
	return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text)
}

func (c *cluster) refuse(index int) []byte {
	switch c.leader {
	case index:
		return nil
	case -1:
		return []byte("-CLUSTERDOWN no leader is known\r\n")
	}
	return []byte("-MOVED 0 " + c.nodes[c.leader].addr + "\r\n")
}

// pass handles the mode and the options of a TS command as nodes do: a floor raises the oracle.
func (c *cluster) pass(args []string) (fault []byte) {
	for len(args) >= 2 && args[0] != "FLOOR" && args[0] != "TRACEPARENT" {
		args = args[1:]
	}
	for ; len(args) >= 2; args = args[2:] {
		floor, err := isotone.ParseTimestamp(args[1])
		switch {
		case c.old || c.untraced && args[0] == "TRACEPARENT":
			return []byte("-ERR wrong number of arguments for 'ts' command\r\n")
		case args[0] == "TRACEPARENT":
		case args[0] != "FLOOR" || err != nil:
			return []byte("-ERR options\r\n")
		case c.guard > 0 && floor.Index > c.guard:
			return []byte("-REGRESSED it is behind\r\n")
		case c.last.Before(floor):
			c.last = floor
		}
	}
	return nil
}

// setBack restores the fake oracle from an older copy.
func (c *cluster) setBack(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.Index = index
}

func (c *cluster) change(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) slots() []byte {
	if c.leader < 0 {
		return []byte("-CLUSTERDOWN no leader is known\r\n")
	}
	order := []*node{c.nodes[c.leader]}
	for _, n := range c.nodes {
		if n.index != c.leader && !slices.Contains(c.gone, n.index) {
			order = append(order, n)
		}
	}
	b := fmt.Appendf(nil, "*1\r\n*%d\r\n:0\r\n:16383\r\n", 2+len(order))
	for _, n := range order {
		host, port, _ := net.SplitHostPort(n.addr)
		b = fmt.Appendf(b, "*4\r\n$%d\r\n%s\r\n:%s\r\n$1\r\n%d\r\n*0\r\n", len(host), host, port, n.index)
	}
	return b
}

// snowflakes issues IDs whose worker is the node.
func (c *cluster) snowflakes(index int, args []string) []byte {
	count := 1
	var b []byte
	if n := len(args); n > 2 && args[n-2] == "TRACEPARENT" {
		if c.untraced || c.old {
			return []byte("-ERR wrong number of arguments for 'snowflake' command\r\n")
		}
		args = args[:n-2]
	}
	if len(args) > 1 {
		count, _ = strconv.Atoi(args[1])
		b = fmt.Appendf(b, "*%d\r\n", count)
	}
	for range count {
		c.ids++
		b = fmt.Appendf(b, ":%d\r\n", c.ids<<22|int64(index)<<12)
	}
	return b
}

// worker grants leases as a cluster does: no two of one worker overlap.
func (c *cluster) worker(index int, args []string) []byte {
	if fault := c.refuse(index); fault != nil {
		return fault
	}
	session := args[2]
	held := c.leases[session]
	if args[1] == "RELEASE" {
		if held != nil {
			held.end, _ = strconv.ParseInt(args[5], 10, 64)
			held.released = true
		}
		return []byte("+OK\r\n")
	}
	from, _ := strconv.ParseInt(args[3], 10, 64)
	if held != nil && held.revoked && held.end > from {
		return []byte("-TRYAGAIN no_worker: the worker was revoked by an operator\r\n")
	}
	length, _ := strconv.ParseInt(args[4], 10, 64)
	if held == nil || held.end <= from { // not a renewal: the lease has ended, and the worker may have another holder
		held = &lease{worker: len(c.leases), start: from, end: from}
		if len(args) == 7 {
			held.worker, _ = strconv.Atoi(args[6])
		}
		for _, other := range c.leases {
			if other.worker == held.worker {
				held.start = max(held.start, other.end)
			}
		}
		c.leases[fmt.Sprintf("%s#%d", session, len(c.leases))] = held
		c.leases[session] = held
	}
	held.end = max(held.end, from+length)
	layout := snowflake.Twitter.String()
	return fmt.Appendf(nil, "*5\r\n:%d\r\n:%d\r\n:%d\r\n$%d\r\n%s\r\n:%d\r\n",
		held.worker, held.start, held.end, len(layout), layout, snowflake.Twitter.Epoch)
}

// revoke revokes the only lease, and returns its session.
func (c *cluster) revoke() (session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.leases {
		if l.revoked = true; !strings.Contains(name, "#") {
			session = name
		}
	}
	return session
}

// isReleased reports whether the lease of a session was released.
func (c *cluster) isReleased(session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[session].released
}

func stamp(ts isotone.Timestamp) []byte {
	b := []byte("$16\r\n")
	b = binary.BigEndian.AppendUint64(b, ts.Time)
	b = binary.BigEndian.AppendUint64(b, ts.Index)
	return append(b, "\r\n"...)
}

// connected waits until a client has all its connections to the leader: conns, and that for direct
// calls.
func connected(t testing.TB, c *client.Client, conns int) {
	t.Helper()
	await.Until(t, "all connections, and that for direct calls", func() bool { return client.Free(c) == conns+1 })
}

// notes are what hooks have told, in order.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// increasing returns a function that takes the first and the last timestamp of one answer after the other, and ends the test if one is not above
// those before.
func increasing(t *testing.T) func(first, end isotone.Timestamp, err error) {
	var last isotone.Timestamp
	return func(first, end isotone.Timestamp, err error) {
		t.Helper()
		if err != nil || !last.Before(first) {
			t.Fatalf("%v after %v, %v", first, last, err)
		}
		last = end
	}
}
