package driver

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/reply"
)

// conn is a connection to a node. A call has it alone.
type conn struct {
	net.Conn
	in *bufio.Reader
}

// connBuffer is the size of its buffer, in bytes: a reply has a few dozen.
const connBuffer = 4 << 10

// conns are the connections to all nodes that no call uses now. There are never more than calls at a time.
type conns struct {
	addresses []string
	begin     func(*conn) error // what a new connection needs; nil: nothing

	mu   sync.Mutex
	idle [][]*conn // by node
}

func newConns(addresses []string, begin func(*conn) error) *conns {
	return &conns{addresses: addresses, begin: begin, idle: make([][]*conn, len(addresses))}
}

// call has exchange talk to a node until the deadline. After an error of exchange other than a refusal by the system, all
// connections to the node are closed: what has ended one of them has most likely ended the others, too.
func (c *conns) call(node int, deadline time.Time, exchange func(*conn) error) error {
	conn, err := c.take(node, deadline)
	if err != nil {
		return failure(err)
	}
	if err = conn.SetDeadline(deadline); err == nil {
		err = exchange(conn)
	}
	var refused *Error
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle[node] = append(c.idle[node], conn)
	if err != nil && !(errors.As(err, &refused) && refused.Kind == Unavailable) {
		c.closeNode(node)
		err = failure(err)
	}
	return err
}

// take returns a connection that is idle, or makes one.
func (c *conns) take(node int, deadline time.Time) (*conn, error) {
	c.mu.Lock()
	if last := len(c.idle[node]) - 1; last >= 0 {
		defer c.mu.Unlock()
		taken := c.idle[node][last]
		c.idle[node] = c.idle[node][:last]
		return taken, nil
	}
	c.mu.Unlock()
	dialer := net.Dialer{Deadline: deadline}
	raw, err := dialer.Dial("tcp", c.addresses[node])
	if err != nil {
		return nil, err
	}
	made := &conn{Conn: raw, in: bufio.NewReaderSize(raw, connBuffer)}
	if c.begin == nil {
		return made, nil
	}
	if err = raw.SetDeadline(deadline); err == nil {
		err = c.begin(made)
	}
	if err != nil {
		_ = raw.Close()
	}
	return made, err
}

// close closes the connections, if connect made any. No call is under way.
func (c *conns) close() {
	if c == nil {
		return
	}
	for node := range c.idle {
		c.closeNode(node)
	}
}

func (c *conns) closeNode(node int) {
	for _, conn := range c.idle[node] {
		_ = conn.Close()
	}
	c.idle[node] = nil
}

// replyLimits bound a reply of the systems here: INFO of Redis has a few thousand bytes.
var replyLimits = reply.Limits{Bytes: 64 << 10}

// command sends a command of the Redis protocol, already in its form, and returns the reply.
func (c *conn) command(line []byte) (v reply.Value, err error) {
	if _, err = c.Write(line); err != nil {
		return v, err
	}
	v, err = reply.Read(c.in, replyLimits)
	var refused reply.Error
	switch {
	case errors.As(err, &refused):
		return v, Errorf(Unavailable, "%s", string(refused))
	case errors.Is(err, reply.ErrMalformed):
		return v, Errorf(Malformed, "%v", err)
	}
	return v, err
}
