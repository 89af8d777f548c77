package demofencing

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/reply"
)

// fenceScript is that of package fence, a module of its own with a client of Redis; a test compares the two.
//
//go:embed fence.lua
var fenceScript string

// The keys of a run. All holders write to both.
const (
	keyFence  = "{report}:fence"
	keyFenced = "{report}:fenced"
	keyPlain  = "{report}:plain"
)

const (
	// redisTimeout bounds a command, and redisStart the start of the server.
	redisTimeout = 10 * time.Second
	redisStart   = time.Minute
)

// redisLimits bound a reply: the text of a value, or an array of two.
var redisLimits = reply.Limits{Bytes: 1 << 10, Items: 16, Depth: 1}

// startRedis starts a server with data in dir, and waits until it answers. Its fence survives a crash: see package fence.
func startRedis(ctx context.Context, dir string) (server *child.Process, addr string, err error) {
	path, err := redisProgram()
	if err != nil {
		return nil, "", err
	}
	port, err := ports.Free(1)
	if err != nil {
		return nil, "", err
	}
	server, err = child.Run("redis-server", filepath.Join(dir, "redis.log"), cluster.Inherited(), []string{
		path, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
	})
	if err != nil {
		return nil, "", err
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ctx, cancel := context.WithTimeoutCause(ctx, redisStart, fmt.Errorf("redis-server does not answer after %v", redisStart))
	defer cancel()
	for {
		db, err := openRedis(ctx, addr)
		if err == nil {
			_, err = db.do("PING")
			db.close()
		}
		if err == nil {
			return server, addr, nil
		}
		select {
		case <-server.Ended():
			return nil, "", fmt.Errorf("redis-server has ended by itself (%v):\n%s", server.State(), server.Log())
		case <-ctx.Done():
			return nil, "", errors.Join(context.Cause(ctx), stop(server))
		case <-time.After(cluster.PollInterval):
		}
	}
}

// stop ends a process at once, also one that is paused, and waits for its end.
func stop(p *child.Process) error {
	if err := p.Signal(os.Kill); err != nil {
		return err
	}
	_, err := p.WaitExit(exitTimeout)
	return err
}

// redis is a connection. One goroutine uses it.
type redis struct {
	conn   net.Conn
	reader *bufio.Reader
}

func openRedis(ctx context.Context, addr string) (*redis, error) {
	dialer := net.Dialer{Timeout: redisTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &redis{conn: conn, reader: bufio.NewReader(conn)}, nil
}

func (r *redis) close() { _ = r.conn.Close() }

// do sends a command and reads its reply.
func (r *redis) do(args ...string) (reply.Value, error) {
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	err := r.conn.SetDeadline(time.Now().Add(redisTimeout))
	if err == nil {
		_, err = r.conn.Write(command)
	}
	var v reply.Value
	if err == nil {
		v, err = reply.Read(r.reader, redisLimits)
	}
	if err != nil {
		err = fmt.Errorf("redis: %s: %w", args[0], err)
	}
	return v, err
}

// get returns the value of a key.
func (r *redis) get(key string) (string, error) {
	v, err := r.do("GET", key)
	return string(v.Text), err
}

// raise sets a key under a token, as the fence of package fence does. If the fence is above the token, it changes nothing, and returns where
// the fence is, as 32 hexadecimal digits.
func (r *redis) raise(token isotone.Timestamp, key, value string) (fence string, err error) {
	v, err := r.do("EVAL", fenceScript, "2", keyFence, key, "raise", token.String(), "3", "SET", key, value)
	if err != nil {
		return "", err
	}
	switch {
	case len(v.Items) == 2 && string(v.Items[0].Text) == "ok":
		return "", nil
	case len(v.Items) == 2 && string(v.Items[0].Text) == "fenced":
		return string(v.Items[1].Text), nil
	}
	return "", fmt.Errorf("redis: the script of the fence has answered %+v", v)
}
