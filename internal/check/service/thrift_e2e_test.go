//go:build linux

package service_test

import (
	"bufio"
	"crypto/tls"
	bigendian "encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

// Thrift's binary protocol in frames, written by hand. The tests of the front use Thrift's own
// library; these test the port of a real node.
const (
	thriftCall      = 0x80010001
	thriftReply     = 0x80010002
	thriftStop      = 0
	thriftI64       = 10
	thriftString    = 11
	thriftFrameMax  = 16 << 10
	thriftUserAgent = "chaos"
)

// thriftConn is a connection to the Thrift port.
type thriftConn struct {
	net.Conn
	reader *bufio.Reader
	sent   uint32
}

// dialThrift connects to the Thrift port of a node, under TLS if there is a config.
func dialThrift(t *testing.T, addr string, config *tls.Config) *thriftConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, trial.AnswerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(chaos.ReadyTimeout))
	if config != nil {
		conn = tls.Client(conn, config)
	}
	return &thriftConn{Conn: conn, reader: bufio.NewReader(conn)}
}

// call appends a call in a frame to b; without a user agent it has no arguments.
func (c *thriftConn) call(b []byte, method, userAgent string) []byte {
	c.sent++
	m := bigendian.BigEndian.AppendUint32(nil, thriftCall)
	m = bigendian.BigEndian.AppendUint32(m, uint32(len(method)))
	m = append(m, method...)
	m = bigendian.BigEndian.AppendUint32(m, c.sent)
	if userAgent != "" {
		m = append(m, thriftString, 0, 1)
		m = bigendian.BigEndian.AppendUint32(m, uint32(len(userAgent)))
		m = append(m, userAgent...)
	}
	m = append(m, thriftStop)
	b = bigendian.BigEndian.AppendUint32(b, uint32(len(m)))
	return append(b, m...)
}

// receive reads the reply to a call, which must be a number.
func (c *thriftConn) receive(method string, sequence uint32) (number int64, err error) {
	var size [4]byte
	if _, err := io.ReadFull(c.reader, size[:]); err != nil {
		return 0, err
	}
	frame := make([]byte, min(bigendian.BigEndian.Uint32(size[:]), thriftFrameMax))
	if _, err := io.ReadFull(c.reader, frame); err != nil {
		return 0, err
	}
	head := bigendian.BigEndian.AppendUint32(nil, thriftReply)
	head = bigendian.BigEndian.AppendUint32(head, uint32(len(method)))
	head = append(head, method...)
	head = bigendian.BigEndian.AppendUint32(head, sequence)
	rest, ok := strings.CutPrefix(string(frame), string(head))
	if !ok {
		return 0, fmt.Errorf("%s was answered with %q", method, frame)
	}
	if len(rest) == 12 && rest[:3] == string([]byte{thriftI64, 0, 0}) && rest[11] == thriftStop {
		return int64(bigendian.BigEndian.Uint64([]byte(rest[3:11]))), nil
	}
	return 0, fmt.Errorf("%s has the result %q", method, rest)
}

// ask makes one call, and fails the test if it gets no number.
func (c *thriftConn) ask(t *testing.T, method, userAgent string) int64 {
	t.Helper()
	_, err := c.Write(c.call(nil, method, userAgent))
	var number int64
	if err == nil {
		number, err = c.receive(method, c.sent)
	}
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return number
}

// thriftCluster is three nodes and their Thrift ports.
func thriftCluster(t *testing.T) (c *chaos.Cluster, addrs []string) {
	t.Helper()
	c = chaos.NewCluster(t, trial.Options())
	port, err := ports.Free(len(c.Nodes))
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.Nodes {
		n.Env["THRIFT_PORT"] = fmt.Sprint(port + i)
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port+i))
	}
	c.Start()
	c.WaitReady()
	waitIDs(t, c.Nodes...)
	return c, addrs
}

// waitIDs waits until all nodes make IDs: they lease their workers just after becoming ready.
func waitIDs(t *testing.T, nodes ...*chaos.Node) {
	t.Helper()
	for _, n := range nodes {
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			a, err := chaos.Get(n.HTTPAddr, "/api/snowflake", trial.AnswerTimeout)
			return err == nil && a.Status == 200, fmt.Sprintf("node %d makes no IDs: %v, %v", n.ID, a, err)
		})
	}
}

// TestThrift_EveryNodeMakesIDs requests IDs from all nodes over several pipelined connections
// each, while others request them over HTTP (I9).
func TestThrift_EveryNodeMakesIDs(t *testing.T) {
	t.Parallel()
	c, addrs := thriftCluster(t)
	const conns, rounds, pipeline = 3, 20, 50
	ids := newIDSet()
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		for range conns {
			conn := dialThrift(t, addrs[i], nil)
			wg.Go(func() {
				for range rounds {
					var calls []byte
					first := conn.sent + 1
					for range pipeline {
						calls = conn.call(calls, "get_id", thriftUserAgent)
					}
					if _, err := conn.Write(calls); err != nil {
						t.Errorf("node %d: %v", n.ID, err)
						return
					}
					for sequence := first; sequence <= conn.sent; sequence++ {
						id, err := conn.receive("get_id", sequence)
						if err != nil {
							t.Errorf("node %d: %v", n.ID, err)
							return
						}
						ids.note(t, n, id)
					}
				}
			})
		}
		wg.Go(func() { askHTTP(t, n, ids, rounds) })
	}
	wg.Wait()
	if got, want := ids.len(), len(c.Nodes)*rounds*(conns*pipeline+idBatch); got != want {
		t.Errorf("%d IDs, want %d", got, want)
	}
	for i, n := range c.Nodes {
		wantThriftWorker(t, dialThrift(t, addrs[i], &tls.Config{InsecureSkipVerify: true}), n) // self-signed
	}
	c.Node(1).Shutdown() // with connections open
}

// wantThriftWorker compares the worker and the time that a node reports with its IDs.
func wantThriftWorker(t *testing.T, c *thriftConn, n *chaos.Node) {
	t.Helper()
	now := c.ask(t, "get_timestamp", "")
	if off := time.Since(time.UnixMilli(now)).Abs(); off > trial.AnswerTimeout {
		t.Errorf("node %d: its time is %v off", n.ID, off)
	}
	worker, datacenter := c.ask(t, "get_worker_id", ""), c.ask(t, "get_datacenter_id", "")
	if id := c.ask(t, "get_id", thriftUserAgent); workerOf(id) != datacenter<<5|worker {
		t.Errorf("node %d says that it is worker %d of datacenter %d, and makes %d", n.ID, worker, datacenter, id)
	}
	for _, odd := range []string{"", "my_app", strings.Repeat("a", 65)} {
		if id := c.ask(t, "get_id", odd); id == 0 {
			t.Errorf("node %d: user agent %.10q: no ID", n.ID, odd)
		}
	}
}

// workerOf returns datacenter and worker of an ID with the default layout.
func workerOf(id int64) int64 { return id >> 12 & 1023 }

// TestThrift_DefaultPortMayBeTaken: a node starts without Thrift if the default port is taken.
func TestThrift_DefaultPortMayBeTaken(t *testing.T) {
	t.Parallel()
	// A node of another test may have the port for a while. A program that has it for longer keeps it.
	for end := time.Now().Add(await.Timeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if other, err := net.Listen("tcp", "127.0.0.1:7609"); err == nil {
			defer other.Close()
			break
		}
	}
	o := trial.Options()
	o.Nodes, o.Env = 1, map[string]string{"THRIFT_PORT": ""}
	n := chaos.StartCluster(t, o).Node(1)
	trial.Timestamps(t, n, 1)
	waitIDs(t, n)
	trial.WantWords(t, n.Log(), `"level":"INFO"`, "Thrift is not served", "THRIFT_PORT", `"port":"7609"`)
	n.Shutdown()
}

// TestThrift_ChosenPortMustBeFree: a node does not start if the chosen port is taken.
func TestThrift_ChosenPortMustBeFree(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	o := trial.Options()
	o.Nodes, o.Env = 1, map[string]string{"THRIFT_PORT": strconv.Itoa(other.Addr().(*net.TCPAddr).Port)}
	n := chaos.NewCluster(t, o).Node(1)
	n.Start()
	n.ExpectExit()
	trial.WantExit(t, n, "THRIFT_PORT", "address already in use")
	if strings.Contains(n.Log(), `"msg":"serving"`) {
		t.Errorf("it served meanwhile:\n%s", n.Log())
	}
}
