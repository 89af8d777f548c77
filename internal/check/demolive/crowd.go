package demolive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// connectTimeout bounds the connection of one reader, until the head of its answer; joinTimeout that of all.
	connectTimeout = 30 * time.Second
	joinTimeout    = 2 * time.Minute
	// dialsMax is how many readers connect at a time, less than servers queue.
	dialsMax = 64
)

// crowd is the readers of a phase. Each has a connection and a goroutine.
type crowd struct {
	addr   string
	tls    *tls.Config // nil: plain
	tally  *tally
	follow sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// join connects all readers. What fails is for the tally, and ends it.
func (c *crowd) join(ctx context.Context, count int) {
	var dialing sync.WaitGroup
	turns := make(chan struct{}, dialsMax)
	for range count {
		turns <- struct{}{}
		if wrong, _ := c.tally.faults(); wrong > 0 || ctx.Err() != nil {
			break
		}
		dialing.Go(func() {
			defer func() { <-turns }()
			conn, err := c.connect(ctx)
			if err != nil && ctx.Err() == nil {
				c.tally.ended(err)
			}
			if err == nil {
				c.follow.Go(func() { c.read(conn) })
			}
		})
	}
	dialing.Wait()
}

// connect opens a connection and sends the request.
func (c *crowd) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
	if err := conn.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		return nil, err
	}
	if c.tls != nil {
		secure := tls.Client(conn, c.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	_, err = fmt.Fprintf(conn, "GET /live/votes/stream HTTP/1.1\r\nHost: %s\r\n\r\n", c.addr)
	return conn, err
}

// read reads the stream until it ends.
func (c *crowd) read(conn net.Conn) {
	err := c.events(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.tally.ended(err)
	}
}

func (c *crowd) events(conn net.Conn) error {
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return fmt.Errorf("the node answers %s: %s", answer.Status, why)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return read(answer.Body, c.tally)
}

// read hands the data of events to a tally until the stream ends. A document is one line.
func read(stream io.Reader, t *tally) error {
	lines := bufio.NewReaderSize(stream, documentMax)
	for had := 0; ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			had = t.received(had, bytes.TrimSuffix(data, []byte("\n")), time.Now())
		}
	}
}

// close ends all readers and waits for them. Call it after join. It resets connections: closed ones would keep their ports for a minute.
func (c *crowd) close() {
	c.mu.Lock()
	c.closed = true
	for _, conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.follow.Wait()
}
