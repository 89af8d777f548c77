package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
)

func (c *Client) open(ctx context.Context, addr string) (net.Conn, *bufio.Reader, error) {
	conn, err := c.opt.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, refusedClient(certificateFault(err))
	}
	if conn, err = c.secure(ctx, conn, addr); err != nil {
		return nil, nil, refusedClient(err)
	}
	return conn, bufio.NewReaderSize(conn, bufferSize), nil
}

// execute sends a command to a node after checking that it belongs to the right cluster.
func (c *Client) execute(ctx context.Context, addr string, command ...string) (v reply.Value, err error) {
	conn, read, err := c.open(ctx, addr)
	if err != nil {
		return v, err
	}
	defer conn.Close()
	if _, err := c.handshake(ctx, conn, read, addr, "PING"); err != nil {
		return v, err
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

// within calls talk, whose reads and writes on conn it aborts when ctx is done. After an
// error the connection is unusable.
func within(ctx context.Context, conn net.Conn, talk func() error) error {
	aborted := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(aborted) })
	defer stop()
	err := talk()
	if !stop() && ctx.Err() != nil {
		return ctx.Err()
	}
	return certificateFault(err)
}

// toLeader has the leader execute an idempotent command, and retries until ctx is done. Each
// attempt uses a new connection, and ends after DialTimeout.
func (c *Client) toLeader(ctx context.Context, command ...string) (reply.Value, error) {
	return c.toLeaderUnless(ctx, "", command...)
}

// toLeaderUnless is toLeader that returns a refusal with the code last at once.
func (c *Client) toLeaderUnless(ctx context.Context, last isotone.Code, command ...string) (reply.Value, error) {
	return c.toLeaderBy(ctx, c.opt.DialTimeout, last, func(ctx context.Context, addr string) (reply.Value, error) {
		return c.execute(ctx, addr, command...)
	})
}

// toLeaderBy is toLeaderUnless by attempts that execute makes, each of which ends after timeout.
func (c *Client) toLeaderBy(ctx context.Context, timeout time.Duration, last isotone.Code, execute func(ctx context.Context, addr string) (reply.Value, error)) (reply.Value, error) {
	if !c.enter() {
		return reply.Value{}, ErrClosed
	}
	defer c.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	addr, moves := "", 0
	var quota *isotone.Error // why the latest attempt was refused, if that was a quota
	for failures := 0; ; failures++ {
		if addr == "" {
			addr = c.nextAddr(failures)
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		v, err := execute(attempt, addr)
		cancel()
		c.report(addr, err)
		var refusal *isotone.Error
		switch {
		case err == nil:
			return v, nil
		case c.ctx.Err() != nil:
			return reply.Value{}, ErrClosed
		case errors.As(err, &refusal) && (!repeatable(refusal.Code) || refusal.Code == last):
			return reply.Value{}, err
		}
		if failures > 0 && refusal == nil && isOver(ctx) {
			return reply.Value{}, c.overdue(ctx, quota) // the end of the call says nothing about the node
		}
		c.trouble.note(addr, err)
		if addr = ""; refusal != nil && refusal.Leader != "" && moves < search.MovesMax {
			addr, moves = refusal.Leader, moves+1
			continue
		}
		moves = 0
		wait := backoff(failures)
		if quota = nil; refusal != nil && refusal.Code == isotone.CodeQuotaExceeded {
			wait, quota = quotaPause(refusal, failures), refusal
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if c.ctx.Err() != nil {
				return reply.Value{}, ErrClosed
			}
			return reply.Value{}, c.overdue(ctx, quota)
		}
	}
}

// isOver waits for the end of ctx if its deadline has come: a dial that the deadline ends may
// fail a moment before.
func isOver(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// transient reports whether the same cluster may answer the request later.
func transient(code isotone.Code) bool {
	switch code {
	case isotone.CodeNotLeader, isotone.CodeNoLeader, isotone.CodeOverloaded, isotone.CodeNoWorker, isotone.CodeNoQuorum, isotone.CodeQuotaExceeded:
		return true
	}
	return false
}

// repeatable reports whether the node may succeed later, or another node now.
func repeatable(code isotone.Code) bool {
	return transient(code) || code == isotone.CodeDeadlineExceeded || code == isotone.CodeWrongCluster
}

// nextAddr returns the node to ask after that many failures: first the last known leader,
// then every member in turn.
func (c *Client) nextAddr(failures int) string {
	seen := c.seen.Load()
	if seen.Leader != "" && failures%(len(seen.Members)+1) == 0 {
		return seen.Leader
	}
	return seen.Members[failures%len(seen.Members)]
}
