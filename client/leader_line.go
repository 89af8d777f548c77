package client

import (
	"bufio"
	"context"
	"net"
	"time"

	"github.com/isotone/isotone/internal/reply"
)

// leaderLine is a connection to the leader that is kept from one command to the next. It belongs to one goroutine.
type leaderLine struct {
	client *Client
	addr   string
	conn   net.Conn // nil: none
	read   *bufio.Reader
}

// watchTimeout bounds an attempt to have a command answered that may wait for watchMillis.
const watchTimeout = 12 * time.Second

// ask has the leader answer an idempotent command, and retries until ctx is done.
func (l *leaderLine) ask(ctx context.Context, command ...string) (reply.Value, error) {
	return l.client.toLeaderBy(ctx, watchTimeout, "", func(ctx context.Context, addr string) (reply.Value, error) {
		return l.execute(ctx, addr, command...)
	})
}

func (l *leaderLine) execute(ctx context.Context, addr string, command ...string) (v reply.Value, err error) {
	c := l.client
	if l.addr != addr {
		l.close()
	}
	if l.conn == nil {
		opening, cancel := context.WithTimeout(ctx, c.opt.DialTimeout)
		defer cancel()
		conn, read, err := c.open(opening, addr)
		if err != nil {
			return v, err
		}
		if _, err := c.handshake(opening, conn, read, addr, "PING"); err != nil {
			_ = conn.Close()
			return v, err
		}
		l.addr, l.conn, l.read = addr, conn, read
	}
	err = within(ctx, l.conn, func() error {
		if _, err := l.conn.Write(appendCommand(nil, command...)); err != nil {
			return err
		}
		v, err = readReply(l.read)
		return err
	})
	if err != nil {
		l.close()
	}
	return v, err
}

func (l *leaderLine) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}
