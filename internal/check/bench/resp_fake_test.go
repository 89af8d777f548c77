package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
)

// respListener makes a fake node serve RESP on its port as well.
type respListener struct {
	net.Listener
	node *fakeNode
}

func (l respListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &respConn{Conn: c, node: l.node, in: bufio.NewReader(c)}, nil
}

// respConn is a connection of the HTTP server. If it carries RESP, the first Read serves it
// to its end, and the HTTP server sees only that. So the HTTP server closes these connections
// with its own, and waits for them.
type respConn struct {
	net.Conn
	node  *fakeNode
	in    *bufio.Reader
	known bool
}

func (c *respConn) Read(p []byte) (int, error) {
	if !c.known {
		c.known = true
		if first, err := c.in.Peek(1); err == nil && first[0] == '*' {
			c.serve()
			return 0, io.EOF
		}
	}
	return c.in.Read(p)
}

// serve answers commands until the connection ends. Commands that arrive together get their
// answers in one write.
func (c *respConn) serve() {
	var out bytes.Buffer
	for {
		args, err := c.command()
		if err != nil {
			return
		}
		c.node.answerRESP(&out, args)
		if c.in.Buffered() > 0 {
			continue
		}
		if _, err := c.Write(out.Bytes()); err != nil {
			return
		}
		out.Reset()
	}
}

// command reads an array of bulk strings.
func (c *respConn) command() (args []string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(c.in, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err := fmt.Fscanf(c.in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		arg := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(c.in, arg); err != nil {
			return nil, err
		}
		args = append(args, string(arg[:size]))
	}
	return args, nil
}

// answerRESP answers TS [count].
func (n *fakeNode) answerRESP(out io.Writer, args []string) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[n.addr()]++
	count := uint64(1)
	if len(args) > 1 {
		count, _ = strconv.ParseUint(args[1], 10, 64)
	}
	if args[0] != "TS" || count == 0 {
		fmt.Fprintf(out, "-ERR unexpected command: %s\r\n", strings.Join(args, " "))
		return
	}
	if c.short != nil && c.short() {
		fmt.Fprint(out, "$5\r\nshort\r\n")
		return
	}
	issued, code := c.ask(n, count)
	switch code {
	case isotone.CodeNoLeader:
		fmt.Fprint(out, "-CLUSTERDOWN injected by the test\r\n")
	case isotone.CodeNotLeader:
		fmt.Fprintf(out, "-MOVED 0 %s\r\n", c.leader)
	default:
		body, _ := issued.First.MarshalBinary()
		fmt.Fprintf(out, "$16\r\n%s\r\n", body)
		c.issued()
	}
}
