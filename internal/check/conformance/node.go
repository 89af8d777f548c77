package conformance

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/isotone/isotone"
)

// node is one node of a stage. It answers as a node of Isotone does, unless the scenario says otherwise. All
// fields that change are guarded by stage.mu.
type node struct {
	s       *stage
	index   int
	addr    string
	cluster string // as INFO reports it; "-": no such line
	secure  *tls.Config
	raw     bool // bytes that are no command are no fault

	listener net.Listener
	conns    map[*conn]bool
	dials    int
	ends     []time.Time // of connections
	rules    []*rule     // the first that matches a request answers it
	// floor is what the client had received when the node began to listen. So it knew that when it dialed.
	floor isotone.Timestamp
}

// conn is a connection to a node.
type conn struct {
	net.Conn
	node                   *node
	name                   string
	authenticated, checked bool // what came on the connection: credentials, the check of the cluster
	user                   string
	former                 string // a secret that was right when the connection began
	resp3                  bool
	answered               bool // a request for timestamps
	asksClock, asksOther   bool // what came on the connection: INTERVAL, and what is not for a clock
	over                   bool
	floor                  isotone.Timestamp
}

// request is a command that a node has received.
type request struct {
	conn *conn
	name string // TS, TS64, SNOWFLAKE, CLUSTER SLOTS, WORKER LEASE, …
	args []string
	seq  int       // its place among all events of the stage
	at   time.Time // when it was read
	sent time.Time // just before its answer was written
}

func (r *request) String() string { return strings.Join(r.args, " ") }

// option returns the argument after the word, or "".
func (r *request) option(word string) string {
	for i, arg := range r.args[:len(r.args)-1] {
		if i > 0 && strings.EqualFold(arg, word) {
			return r.args[i+1]
		}
	}
	return ""
}

// has reports whether the request has an argument.
func (r *request) has(word string) bool {
	for _, arg := range r.args[1:] {
		if strings.EqualFold(arg, word) {
			return true
		}
	}
	return false
}

// answer is what a node does with a request.
type answer struct {
	bytes  []byte
	end    bool // of the connection, after the bytes
	issued *issue
}

// rule has a node answer requests in its own way.
type rule struct {
	name  string // of the requests; "" is every one
	times int    // that remain; negative: all
	act   func(*request) answer
}

// listenTimeout bounds the wait for the node's port.
const listenTimeout = 10 * time.Second

// start has the node listen.
func (n *node) start() {
	listener, err := net.Listen("tcp", n.addr)
	// A program that is just being started has the former listener until it runs.
	for began := time.Now(); errors.Is(err, syscall.EADDRINUSE) && time.Since(began) < listenTimeout; {
		time.Sleep(time.Millisecond)
		listener, err = net.Listen("tcp", n.addr)
	}
	if err != nil {
		panic(broken{fmt.Sprintf("no node can listen: %v", err)})
	}
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	n.listener, n.conns, n.floor = listener, map[*conn]bool{}, n.s.received
	n.s.work.Go(func() { n.accept(listener) })
}

func (n *node) accept(listener net.Listener) {
	for {
		nc, err := listener.Accept()
		if err != nil {
			return
		}
		n.s.mu.Lock()
		if n.listener != listener {
			n.s.mu.Unlock()
			_ = nc.Close()
			return
		}
		n.dials++
		c := &conn{Conn: nc, node: n, name: fmt.Sprintf("%s.%d", n.name(), n.dials), floor: n.floor}
		n.conns[c] = true
		n.s.event("%s: connected", c.name)
		n.s.work.Go(c.serve)
		n.s.mu.Unlock()
	}
}

func (n *node) name() string { return string(rune('A' + n.index)) }

// stop ends the node, as the end of its process does. Connections are reset or closed, and further ones refused.
func (n *node) stop() {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	if n.listener != nil {
		_ = n.listener.Close()
		n.listener = nil
		n.s.note("%s: stopped", n.name())
	}
	n.endAll()
}

// restart ends all connections, and takes new ones. None that was begun before is among these.
func (n *node) restart() {
	n.stop()
	n.start()
}

func (n *node) endAll() {
	for c := range n.conns {
		_ = c.Close()
	}
}

// serve reads requests and answers them.
func (c *conn) serve() {
	s := c.node.s
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		c.over = true
		c.node.ends = append(c.node.ends, time.Now())
		delete(c.node.conns, c)
		s.event("%s: closed", c.name)
	}()
	if c.node.secure != nil && !c.handshake() {
		return
	}
	read := bufio.NewReader(c)
	for {
		args, err := readCommand(read)
		var malformed malformedError
		if errors.As(err, &malformed) && !c.node.raw {
			s.mu.Lock()
			s.fault("C3", "%s got %s", c.name, malformed)
			s.mu.Unlock()
		}
		if err != nil || !c.handle(args) {
			return
		}
	}
}

// handshake begins TLS.
func (c *conn) handshake() bool {
	inside := tls.Server(c.Conn, c.node.secure)
	err := inside.HandshakeContext(c.node.s.ctx)
	c.node.s.mu.Lock()
	defer c.node.s.mu.Unlock()
	if err != nil {
		c.node.s.note("%s: TLS: %v", c.name, err)
		return false
	}
	c.Conn = inside
	return true
}

// handle answers a request. It reports whether the connection goes on.
func (c *conn) handle(args []string) bool {
	s := c.node.s
	r := &request{conn: c, name: nameOf(args), args: args, at: time.Now()}
	s.mu.Lock()
	r.seq = s.event("%s ← %s", c.name, s.hidden(r))
	s.requests = append(s.requests, r)
	s.examine(r)
	act := c.node.ruleFor(r)
	s.mu.Unlock()
	var a answer
	if act != nil {
		a = act(r)
	} else {
		a = s.proper(r)
	}
	s.mu.Lock()
	r.sent = time.Now()
	if len(a.bytes) > 0 {
		s.note("%s → %.60q", c.name, a.bytes)
	}
	if a.issued != nil && r.name != "SNOWFLAKE" {
		c.answered = true
	}
	s.mu.Unlock()
	if _, err := c.Write(a.bytes); err != nil {
		return false
	}
	return !a.end
}

// ruleFor returns the action of the first rule for the request, or nil.
func (n *node) ruleFor(r *request) func(*request) answer {
	for _, rule := range n.rules {
		if rule.times != 0 && (rule.name == "" || rule.name == r.name) {
			rule.times--
			return rule.act
		}
	}
	return nil
}

// nameOf returns the name of a command, of two words if it has subcommands.
func nameOf(args []string) string {
	name := strings.ToUpper(args[0])
	switch name {
	case "CLUSTER", "WORKER", "CLIENT":
		if len(args) > 1 {
			return name + " " + strings.ToUpper(args[1])
		}
	}
	return name
}

// stamps reports whether a request asks for timestamps.
func (r *request) stamps() bool { return r.name == "TS" || r.name == "TS64" }

// needsCluster reports whether a request must not reach a node of another cluster.
func (r *request) needsCluster() bool {
	return r.stamps() || r.name == "SNOWFLAKE" || strings.HasPrefix(r.name, "WORKER")
}
