package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"github.com/isotone/isotone"
)

// reach makes a connection.
func (c *Client) reach(ctx context.Context, addr string) (net.Conn, *bufio.Reader, error) {
	conn, err := c.opt.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	return conn, bufio.NewReaderSize(conn, laneBufferSize), nil
}

// exchange asks one thing on a connection of its own: it must not wait behind what a
// connection in use is waiting for. The thing must do no harm in another cluster.
func (c *Client) exchange(ctx context.Context, addr string, command ...string) (value, error) {
	conn, read, err := c.reach(ctx, addr)
	if err != nil {
		return value{}, err
	}
	defer conn.Close()
	return c.introduce(ctx, conn, read, addr, command...)
}

// order has a node carry out a command, once it is known to be of the right cluster.
func (c *Client) order(ctx context.Context, addr string, command ...string) (v value, err error) {
	conn, read, err := c.reach(ctx, addr)
	if err != nil {
		return value{}, err
	}
	defer conn.Close()
	if _, err := c.introduce(ctx, conn, read, addr, "PING"); err != nil {
		return value{}, err
	}
	err = within(ctx, conn, func() error {
		if _, err := conn.Write(appendCommand(nil, command...)); err != nil {
			return err
		}
		v, err = readReply(read)
		return err
	})
	return v, err
}

// within runs a conversation until ctx is done at most. After an error the connection is of
// no more use.
func within(ctx context.Context, conn net.Conn, talk func() error) error {
	aborted := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(aborted) })
	defer stop()
	err := talk()
	if !stop() && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// readReply reads an answer; an error is what the node says, as an isotone.Error, or of the
// connection.
func readReply(read *bufio.Reader) (value, error) {
	v, fault, err := readValue(read)
	if err == nil && fault != nil {
		err = fault.err()
	}
	return v, err
}

// toLeader has the leader carry out a command that may be repeated, until ctx is done.
// Each attempt has a connection of its own, and ends after DialTimeout.
func (c *Client) toLeader(ctx context.Context, command ...string) (value, error) {
	if !c.enter() {
		return value{}, ErrClosed
	}
	defer c.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	addr, moves := "", 0
	for failures := 0; ; failures++ {
		if addr == "" {
			addr = c.guess(failures)
		}
		attempt, cancel := context.WithTimeout(ctx, c.opt.DialTimeout)
		v, err := c.order(attempt, addr, command...)
		cancel()
		c.hear(addr, err)
		var said *isotone.Error
		switch {
		case err == nil:
			return v, nil
		case c.ctx.Err() != nil:
			return value{}, ErrClosed
		case errors.As(err, &said) && !repeatable(said.Code):
			return value{}, err
		}
		c.note(addr, err)
		if addr = ""; said != nil && said.Leader != "" && moves < movesMax {
			addr, moves = said.Leader, moves+1
			continue
		}
		moves = 0
		pause := time.NewTimer(backoff(failures))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if c.ctx.Err() != nil {
				return value{}, ErrClosed
			}
			return value{}, c.gaveUp(ctx)
		}
	}
}

// repeatable reports whether a node that fails with the code may do better later, or
// another one.
func repeatable(code isotone.Code) bool {
	switch code {
	case isotone.CodeNotLeader, isotone.CodeNoLeader, isotone.CodeOverloaded, isotone.CodeDeadlineExceeded, isotone.CodeWrongCluster:
		return true
	}
	return false
}

// guess returns whom to ask after so many failures: the leader as far as it is known,
// then everyone in turn.
func (c *Client) guess(failures int) string {
	seen := c.seen.Load()
	if seen.leader != "" && failures%(len(seen.members)+1) == 0 {
		return seen.leader
	}
	return seen.members[failures%len(seen.members)]
}
