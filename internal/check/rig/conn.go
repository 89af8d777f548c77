package rig

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
)

// Dial opens a connection, with TLS if cfg is not nil.
func Dial(t *testing.T, addr string, cfg *tls.Config) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, Wait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(Wait))
	if cfg != nil {
		return tls.Client(c, cfg)
	}
	return c
}

// onDemand opens its connection at the first use. A node ends a connection that stays silent for ten seconds, and on a busy machine a test
// may need longer to get from one of its connections to the next: to check a password is work.
type onDemand struct {
	net.Conn // nil before
	dial     func() net.Conn
	once     sync.Once
}

func dialOnDemand(t *testing.T, addr string, cfg *tls.Config) *onDemand {
	return &onDemand{dial: func() net.Conn {
		t.Helper()
		return Dial(t, addr, cfg)
	}}
}

func (c *onDemand) opened() net.Conn {
	c.once.Do(func() { c.Conn = c.dial() })
	return c.Conn
}

func (c *onDemand) Read(b []byte) (int, error)    { return c.opened().Read(b) }
func (c *onDemand) Write(b []byte) (int, error)   { return c.opened().Write(b) }
func (c *onDemand) SetDeadline(t time.Time) error { return c.opened().SetDeadline(t) }
func (c *onDemand) Close() error                  { return c.opened().Close() }

// HTTPConn is a connection for HTTP/1.1.
type HTTPConn struct {
	t *testing.T
	net.Conn
	R *bufio.Reader // of its answers
}

// DialHTTP is Dial for that protocol, at the first request.
func DialHTTP(t *testing.T, addr string, cfg *tls.Config) *HTTPConn {
	t.Helper()
	c := dialOnDemand(t, addr, cfg)
	return &HTTPConn{t, c, bufio.NewReader(c)}
}

// Bearer returns the value of Authorization for a user.
func Bearer(name, secret string) string { return "Bearer " + name + "~" + secret }

// Basic is Bearer in the form that browsers send.
func Basic(name, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+secret))
}

// Send writes a request for path, to be answered within Wait.
func (c *HTTPConn) Send(path, authorization string) {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(Wait))
	if authorization != "" {
		authorization = "Authorization: " + authorization + "\r\n"
	}
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+authorization+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

// Receive reads an answer.
func (c *HTTPConn) Receive() (status int, header http.Header, body string) {
	c.t.Helper()
	answer, err := http.ReadResponse(c.R, &http.Request{Method: http.MethodGet})
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(b)
}

// Ask sends a request and reads its answer.
func (c *HTTPConn) Ask(path, authorization string) (status int, header http.Header, body string) {
	c.t.Helper()
	c.Send(path, authorization)
	return c.Receive()
}

// RedisConn is a connection for the protocol of Redis.
type RedisConn struct {
	t *testing.T
	net.Conn
	R *bufio.Reader // of its answers
}

// DialRedis is Dial for that protocol, at the first command.
func DialRedis(t *testing.T, addr string, cfg *tls.Config) *RedisConn {
	t.Helper()
	c := dialOnDemand(t, addr, cfg)
	return &RedisConn{t, c, bufio.NewReader(c)}
}

// Send writes commands, all at once. Each is words with spaces between.
func (c *RedisConn) Send(commands ...string) {
	c.t.Helper()
	var b strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	_ = c.SetDeadline(time.Now().Add(Wait))
	if _, err := io.WriteString(c, b.String()); err != nil {
		c.t.Fatal(err)
	}
}

// Receive returns the first line of an answer, after it has read all of it.
func (c *RedisConn) Receive() string {
	c.t.Helper()
	line, err := c.R.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%q, %v", line, err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if n < 0 { // null
			break
		}
		if _, err := io.CopyN(io.Discard, c.R, int64(n+2)); err != nil {
			c.t.Fatal(err)
		}
	case '%':
		n *= 2
		fallthrough
	case '*':
		for range n {
			c.Receive()
		}
	}
	return line
}

// Does sends a command, and checks how its answer begins. It repeats the command while the node cannot answer for the moment, as
// when a busy machine renews a lease too late.
func (c *RedisConn) Does(command, want string) {
	c.t.Helper()
	var got string
	await.Until(c.t, command+" is answered", func() bool {
		c.Send(command)
		got = c.Receive()
		return !strings.HasPrefix(got, "-TRYAGAIN") || strings.HasPrefix(want, "-TRYAGAIN")
	})
	if !strings.HasPrefix(got, want) || strings.Contains(got, Secret) {
		c.t.Errorf("%s: %q, want %q", command, got, want)
	}
}

// ThriftCall asks for a worker ID by the binary protocol, and returns the type of the answer: 2 is
// a reply, 3 an exception.
func ThriftCall(t *testing.T, c net.Conn) (kind byte, err error) {
	t.Helper()
	const name = "get_worker_id"
	if _, err := io.WriteString(c, "\x80\x01\x00\x01\x00\x00\x00\x0d"+name+"\x00\x00\x00\x07\x00"); err != nil {
		return 0, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, err
	}
	return head[3], nil
}
