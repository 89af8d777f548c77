//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// hostileAddresses is how many client addresses the connections of hostile clients come
	// from: 127.0.0.2 and those after it.
	hostileAddresses = 20
	// hostileLongest bounds how long hostile clients wait for their share of the processors.
	hostileLongest = 20 * time.Second
	// hostileWait bounds each wait of a hostile client for the node.
	hostileWait = 2 * time.Second
	// hostileReadBuffer is the receive buffer of hostile clients, in bytes: small, so that the
	// answers that they do not read fill it, and not the memory of the machine.
	hostileReadBuffer = 4 << 10
	// hostileEnv is the environment variable with the [Hostile] of a process that runs it.
	hostileEnv = "ISOTONE_HOSTILE"
)

// Hostile says what hostile clients do, all in one process of the lowest priority and with one
// processor, so that what they compute takes little from the nodes.
type Hostile struct {
	// Kind is one of [HostileKinds].
	Kind string
	// Addrs and Thrift are the ports of the nodes under attack, one of each for a node. Each has a part of the
	// connections.
	Addrs, Thrift []string
	// Guest are the name and secret of a user with little quota.
	Guest [2]string
	// Unpaced clients go as fast as they can; otherwise the rate of the kind bounds them.
	Unpaced bool
	// Connections is how many connections are held open at a time.
	Connections int
	// For is how long it lasts. On a busy machine it lasts until there were ActionsMin actions, up to
	// hostileLongest.
	For        time.Duration
	ActionsMin int64
}

// hostileQUIC is the network of kinds with connections of QUIC.
const hostileQUIC = "quic"

// HostileQUIC dials connections of QUIC from an address. Programs that run hostile clients set it; other modules, which import this
// package, need not depend on an implementation.
var HostileQUIC func(ctx context.Context, from net.IP, to string) (HostileQUICConn, error)

// HostileQUICConn is a connection that nothing is sent on. Ended returns why it has ended, or nil.
type HostileQUICConn interface {
	net.Conn
	Ended() error
}

// HostileReport is what hostile clients did and received.
type HostileReport struct {
	// Opened counts connections, Actions what was done on them (see [HostileKind]).
	Opened, Actions int64
	// Served counts answers that a client of that kind wants, Refused those that refuse, Ended
	// the connections that the node closed, and Waited those on which it did not answer in 2 s.
	Served, Refused, Ended, Waited int64
}

// Add adds another report.
func (r *HostileReport) Add(other HostileReport) {
	r.Opened += other.Opened
	r.Actions += other.Actions
	r.Served += other.Served
	r.Refused += other.Refused
	r.Ended += other.Ended
	r.Waited += other.Waited
}

// HostileKind is one kind of hostile clients.
type HostileKind struct {
	Name string
	// Rate is how many actions there are in a second, on all connections together. The first
	// one on a connection opens it.
	Rate int
	// OneAddress has all connections come from one address.
	OneAddress bool
	// MayBeServed says that some of what the clients want is theirs.
	MayBeServed bool

	network string // "": tcp; hostileQUIC: a connection of QUIC
	thrift  bool   // the other port
	// act does one action. After an error the connection is opened anew.
	act func(*hostileConn) error
}

// RunHostile starts hostile clients. What they did is in the report of [WaitHostile].
func RunHostile(t testing.TB, h Hostile, logPath string) *Process {
	t.Helper()
	spec, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{hostileEnv + "=" + string(spec), "PATH=" + os.Getenv("PATH")}
	return runUntilEnd(t, "hostile: "+h.Kind, logPath, env, []string{"nice", "-n", "19", os.Args[0]})
}

// WaitHostile waits until hostile clients have ended by themselves.
func WaitHostile(t testing.TB, p *Process) (r HostileReport) {
	t.Helper()
	p.ExpectExit()
	code, err := p.WaitExit(2 * ExitTimeout)
	if err == nil && code == 0 {
		err = json.Unmarshal([]byte(p.Log()), &r)
	}
	if err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v: %s", p.Name, code, err, p.Log())
	}
	return r
}

// BeHostile runs hostile clients, if [RunHostile] has started this process for that; then it
// does not return. A test's main function calls it first.
func BeHostile() {
	spec := os.Getenv(hostileEnv)
	if spec == "" {
		return
	}
	var h Hostile
	if err := json.Unmarshal([]byte(spec), &h); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1)
	i := slices.IndexFunc(HostileKinds, func(k HostileKind) bool { return k.Name == h.Kind })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "no kind %q\n", h.Kind)
		os.Exit(2)
	}
	r := h.run(&HostileKinds[i])
	_ = json.NewEncoder(os.Stdout).Encode(r)
	os.Exit(0)
}

func (h *Hostile) run(k *HostileKind) HostileReport {
	ctx, cancel := context.WithTimeout(context.Background(), max(h.For, hostileLongest))
	defer cancel()
	end := time.Now().Add(h.For)
	a := &attack{Hostile: h, kind: k, ctx: ctx, turns: make(chan struct{}), hello: clientHello()}
	var work sync.WaitGroup
	work.Go(a.pace)
	work.Go(func() {
		for ctx.Err() == nil && (time.Now().Before(end) || a.opened.Load() == 0 || a.actions.Load() < h.ActionsMin) {
			time.Sleep(pollInterval)
		}
		cancel()
	})
	for i := range h.Connections {
		work.Go(func() { (&hostileConn{attack: a, index: i}).run() })
	}
	work.Wait()
	return HostileReport{a.opened.Load(), a.actions.Load(), a.served.Load(), a.refused.Load(), a.ended.Load(), a.waited.Load()}
}

// attack is what all connections of a Hostile share.
type attack struct {
	*Hostile
	kind  *HostileKind
	ctx   context.Context
	turns chan struct{}
	hello []byte // a TLS ClientHello

	opened, actions, served, refused, ended, waited atomic.Int64
}

// pace gives turns at the rate of the kind. Turns that nobody took in time are lost.
func (a *attack) pace() {
	if a.Unpaced {
		for a.ctx.Err() == nil {
			select {
			case a.turns <- struct{}{}:
			case <-a.ctx.Done():
			}
		}
		return
	}
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	due := 0.0
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
		}
		for due += float64(a.kind.Rate) * every.Seconds(); due >= 1; due-- {
			select {
			case a.turns <- struct{}{}:
			default:
			}
		}
	}
}

// hostileConn is one connection of an attack, and those that follow it.
type hostileConn struct {
	*attack
	index int
	conn  net.Conn // nil: not open
	read  *bufio.Reader
	step  int // actions since it was opened
}

func (c *hostileConn) run() {
	for {
		select {
		case <-c.ctx.Done():
			c.close()
			return
		case <-c.turns:
		}
		if c.conn == nil {
			if err := c.open(); err != nil {
				c.failed(err)
				continue
			}
		}
		_ = c.conn.SetDeadline(time.Now().Add(hostileWait))
		c.actions.Add(1)
		c.step++
		if err := c.kind.act(c); err != nil {
			c.failed(err)
			c.close()
		}
	}
}

// failed counts what an error means.
func (c *hostileConn) failed(err error) {
	var ne net.Error
	switch {
	case err == errAgain || c.ctx.Err() != nil:
	case errors.As(err, &ne) && ne.Timeout():
		c.waited.Add(1)
	default:
		c.ended.Add(1)
	}
}

func (c *hostileConn) open() (err error) {
	network, to := c.kind.network, c.Addrs
	if network == "" {
		network = "tcp"
	}
	if c.kind.thrift {
		to = c.Thrift
	}
	addr := to[c.index%len(to)]
	last := byte(2)
	if !c.kind.OneAddress {
		last += byte(c.index % hostileAddresses)
	}
	ip := net.IPv4(127, 0, 0, last)
	if network == hostileQUIC {
		ctx, cancel := context.WithTimeout(c.ctx, hostileWait)
		defer cancel()
		conn, err := HostileQUIC(ctx, ip, addr)
		if err != nil {
			return err
		}
		c.conn = conn
		c.opened.Add(1)
		c.step = 0
		return nil
	}
	var from net.Addr = &net.TCPAddr{IP: ip}
	if network == "udp" {
		from = &net.UDPAddr{IP: ip}
	}
	d := net.Dialer{LocalAddr: from, Timeout: hostileWait}
	if c.conn, err = d.DialContext(c.ctx, network, addr); err != nil {
		c.conn = nil
		return err
	}
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(hostileReadBuffer)
		_ = tcp.SetLinger(0) // no port stays in TIME_WAIT
	}
	c.opened.Add(1)
	c.read, c.step = bufio.NewReader(c.conn), 0
	return nil
}

func (c *hostileConn) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// send writes text.
func (c *hostileConn) send(text string) error {
	_, err := io.WriteString(c.conn, text)
	return err
}

// ask sends a command of the Redis protocol, or several with short answers, and counts one answer.
func (c *hostileConn) ask(command string) error {
	if err := c.send(command); err != nil {
		return err
	}
	line, err := c.read.ReadString('\n')
	if err != nil {
		return err
	}
	var n int
	switch line[0] {
	case '-', 'H': // HTTP/1.1 400: it was not taken for the Redis protocol
		c.refused.Add(1)
		return nil
	case '$':
		if _, err = fmt.Sscanf(line, "$%d", &n); err == nil {
			_, err = c.read.Discard(n + 2)
		}
	case '*':
		_, err = fmt.Sscanf(line, "*%d", &n)
		for ; n > 0 && err == nil; n-- {
			err = c.skip()
		}
	}
	c.served.Add(1)
	return err
}

// skip reads a reply that is no array.
func (c *hostileConn) skip() error {
	line, err := c.read.ReadString('\n')
	if n := 0; err == nil && line[0] == '$' {
		if _, err = fmt.Sscanf(line, "$%d", &n); err == nil {
			_, err = c.read.Discard(n + 2)
		}
	}
	return err
}

// get sends a request by HTTP/1.1 and reads the head and body of its answer.
func (c *hostileConn) get(request string) error {
	if err := c.send(request); err != nil {
		return err
	}
	status, length := "", 0
	for {
		line, err := c.read.ReadString('\n')
		switch {
		case err != nil:
			return err
		case status == "":
			status = line
		case line == "\r\n":
			if _, err = c.read.Discard(length); err != nil {
				return err
			}
			if strings.HasPrefix(status, "HTTP/1.1 2") {
				c.served.Add(1)
			} else {
				c.refused.Add(1)
			}
			return nil
		default:
			_, _ = fmt.Sscanf(strings.ToLower(line), "content-length: %d", &length)
		}
	}
}

// drain reads what has come, and waits for nothing.
func (c *hostileConn) drain() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, c.read)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return nil
	}
	if err == nil {
		err = io.EOF
	}
	return err
}
