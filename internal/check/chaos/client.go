//go:build linux

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/namespace"
)

// bodyMax bounds an answer: 65,536 timestamps in binary, and room for metrics.
const bodyMax = 2 << 20

// Conn is one HTTP/1.1 connection. Unlike net/http it never repeats a request on its own.
type Conn struct {
	net.Conn
	// Addr is the address that was dialed.
	Addr   string
	reader *bufio.Reader
}

// Answer is one HTTP response, with its whole body.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Dial connects to a node.
func Dial(addr string, timeout time.Duration) (*Conn, error) {
	dial := func(addr string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout("tcp", addr, timeout)
	}
	if network, ok := routes.Load(addr); ok {
		dial = network.(*namespace.Network).Hub.Dial
	}
	c, err := dial(addr, timeout)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return &Conn{Conn: c, Addr: addr, reader: bufio.NewReader(c)}, nil
}

// Send writes one GET request.
func (c *Conn) Send(target string) error {
	_, err := io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: "+c.Addr+"\r\n\r\n")
	return err
}

// Receive reads one answer.
func (c *Conn) Receive() (*Answer, error) {
	r, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax))
	if err != nil {
		return nil, err
	}
	return &Answer{Status: r.StatusCode, Header: r.Header, Body: body}, nil
}

// Get sends one request and reads its answer, all within timeout. After an error
// the connection is unusable.
func (c *Conn) Get(target string, timeout time.Duration) (*Answer, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if err := c.Send(target); err != nil {
		return nil, err
	}
	return c.Receive()
}

// conns are the connections of one caller to nodes, by address.
type conns map[string]*Conn

// to returns the connection to a node. If there is none, it makes one within timeout.
func (c conns) to(addr string, timeout time.Duration) (conn *Conn, err error) {
	if conn = c[addr]; conn == nil {
		if conn, err = Dial(addr, timeout); err == nil {
			c[addr] = conn
		}
	}
	return conn, err
}

// ask sends one request and reads its answer, all within timeout. It drops a connection that cannot be used again.
func (c conns) ask(conn *Conn, target string, timeout time.Duration) (*Answer, error) {
	answer, err := conn.Get(target, timeout)
	if err != nil || answer.Header.Get("Connection") == "close" {
		_ = conn.Close()
		delete(c, conn.Addr)
	}
	return answer, err
}

func (c conns) close() {
	for _, conn := range c {
		_ = conn.Close()
	}
}

// Get sends one request on a new connection.
func Get(addr, target string, timeout time.Duration) (*Answer, error) {
	c, err := Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Get(target, timeout)
}

// Post sends JSON on a new connection, and reads the answer, all within timeout.
func Post(addr, target, body string, timeout time.Duration) (*Answer, error) {
	c, err := Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", target, addr, len(body), body); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Range decodes the body of GET /timestamp?n=…: timestamps with the same time and consecutive
// indexes.
func (a *Answer) Range() (isotone.Range, error) {
	count := len(a.Body) / isotone.TimestampSize
	if count == 0 || len(a.Body)%isotone.TimestampSize != 0 {
		return isotone.Range{}, fmt.Errorf("chaos: an answer of %d bytes", len(a.Body))
	}
	r := isotone.Range{Count: uint64(count)}
	for i := range count {
		var t isotone.Timestamp
		if err := t.UnmarshalBinary(a.Body[i*isotone.TimestampSize:][:isotone.TimestampSize]); err != nil {
			return isotone.Range{}, err
		}
		if i == 0 {
			r.First = t
		}
		if t != r.At(uint64(i)) {
			return isotone.Range{}, fmt.Errorf("chaos: timestamp %d of %d is %v after %v", i, count, t, r.First)
		}
	}
	return r, nil
}

// Code returns the code in the JSON body of an error answer, or "".
func (a *Answer) Code() isotone.Code {
	var body struct {
		Error struct {
			Code    isotone.Code
			Message string
		}
	}
	if json.Unmarshal(a.Body, &body) != nil || body.Error.Message == "" {
		return ""
	}
	return body.Error.Code
}

// Membership is what a node answers to GET /members.
type Membership struct {
	Leader *struct {
		NodeID uint64
		Addr   string
	}
	Members []MemberView
	NodeID  uint64
	Role    string
	Term    uint64
}

// Members returns the cluster as one node sees it.
func Members(addr string, timeout time.Duration) (*Membership, error) {
	c, err := Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Members(timeout)
}

// Members is [Members] on a connection. After an error the connection is unusable.
func (c *Conn) Members(timeout time.Duration) (*Membership, error) {
	a, err := c.Get("/members", timeout)
	if err != nil {
		return nil, err
	}
	m := new(Membership)
	if err := json.Unmarshal(a.Body, m); err != nil {
		return nil, fmt.Errorf("chaos: /members of %s: %w", c.Addr, err)
	}
	return m, nil
}

// Metric returns the value of the metric without labels, or with exactly the
// labels given in name, as in isotone_peer_connected{peer="2"}.
func Metric(addr, name string) (float64, error) {
	values, err := metrics(addr, name)
	if err != nil {
		return 0, err
	}
	return values[0], nil
}

// metrics is [Metric] for several of them, in one answer.
func metrics(addr string, names ...string) ([]float64, error) {
	a, err := Get(addr, "/metrics", readyTimeout)
	if err != nil {
		return nil, err
	}
	text, values := "\n"+string(a.Body), make([]float64, len(names))
	for i, name := range names {
		_, rest, ok := strings.Cut(text, "\n"+name+" ")
		if !ok {
			return nil, fmt.Errorf("chaos: %s has no metric %s", addr, name)
		}
		value, _, _ := strings.Cut(rest, "\n")
		if values[i], err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
			return nil, fmt.Errorf("chaos: %s of %s: %w", name, addr, err)
		}
	}
	return values, nil
}
