package redisstore_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// lossyHook makes connections that lose the answer to a script when it is on: they send the request,
// wait until the server has answered, and fail.
type lossyHook struct {
	on   atomic.Bool
	sent atomic.Int64 // scripts whose answers were lost
}

func (h *lossyHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: conn, hook: h}, nil
	}
}

func (h *lossyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *lossyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type lossyConn struct {
	net.Conn
	hook   *lossyHook
	script bool // the last request was a script
}

func (c *lossyConn) Write(b []byte) (int, error) {
	c.script = bytes.Contains(b, []byte("evalsha"))
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.script && c.hook.on.Load() {
		c.hook.sent.Add(1)
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}
