//go:build linux

package chaos

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// errAgain ends a connection as intended; another one follows.
var errAgain = errors.New("again")

// HostileKinds has every kind of hostile clients. The rates are bounded so that the clients
// themselves leave most of a machine with two cores to the node.
var HostileKinds = []HostileKind{
	{Name: "connections that send nothing", Rate: 1000, act: func(*hostileConn) error { return nil }},
	{Name: "connections, one after the other", Rate: 1000, act: func(*hostileConn) error { return errAgain }},
	{Name: "connections from one address", Rate: 1000, OneAddress: true, act: func(c *hostileConn) error { return c.drain() }},
	{Name: "requests byte by byte", Rate: 2000, act: slowRequest},
	{Name: "ClientHello, then silence", Rate: 500, act: silentHello},
	{Name: "ClientHello, then silence, Thrift", Rate: 500, thrift: true, act: silentHello},
	{Name: "TLS handshakes", Rate: 150, MayBeServed: true, act: handshakes},
	{Name: "TLS handshakes, Thrift", Rate: 150, MayBeServed: true, thrift: true, act: handshakes},
	{Name: "QUIC handshakes", Rate: 100, MayBeServed: true, network: hostileQUIC, act: func(c *hostileConn) error {
		c.served.Add(1)
		return errAgain
	}},
	{Name: "QUIC connections from one address", Rate: 200, MayBeServed: true, OneAddress: true, network: hostileQUIC, act: holdQUIC},
	{Name: "TLS renegotiation", Rate: 150, act: renegotiate},
	{Name: "wrong passwords, AUTH", Rate: 1000, act: func(c *hostileConn) error { return c.ask("AUTH good wrong" + nonce() + "\r\n") }},
	{Name: "wrong passwords, Basic", Rate: 500, act: func(c *hostileConn) error {
		return c.get(getWith("/timestamp", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("good:wrong"+nonce()))))
	}},
	{Name: "wrong passwords, Bearer", Rate: 500, act: func(c *hostileConn) error {
		return c.get(getWith("/timestamp", "Authorization: Bearer nobody~wrong"+nonce()))
	}},
	{Name: "requests without rights", Rate: 1000, act: withoutRights},
	{Name: "pages of other sites", Rate: 1000, act: foreignPage},
	{Name: "oversized lines and headers", Rate: 500, act: oversizedHTTP},
	{Name: "oversized lengths, Redis protocol", Rate: 500, act: oversizedRESP},
	{Name: "oversized frames, Thrift", Rate: 500, thrift: true, act: oversizedThrift},
	{Name: "answers not read", Rate: 500, MayBeServed: true, act: unread},
	{Name: "beyond the quota of addresses", Rate: 4000, MayBeServed: true, act: func(c *hostileConn) error { return c.ask("TS\r\n") }},
	{Name: "beyond the quota of a user", Rate: 4000, MayBeServed: true, act: asGuest(func(c *hostileConn) error { return c.ask("TS\r\n") })},
	{Name: "MULTI queues", Rate: 500, MayBeServed: true, act: multi},
	{Name: "worker hoarding", Rate: 1000, MayBeServed: true, act: asGuest(hoard)},
	{Name: "live streams", Rate: 500, MayBeServed: true, act: stream},
	{Name: "live streams from one address", Rate: 500, MayBeServed: true, OneAddress: true, act: stream},
	{Name: "HTTP/2 streams", Rate: 400, MayBeServed: true, act: func(c *hostileConn) error { return streams(c, 20, false) }},
	{Name: "HTTP/2 rapid reset", Rate: 400, MayBeServed: true, act: func(c *hostileConn) error { return streams(c, 20, true) }},
	{Name: "UDP garbage", Rate: 4000, network: "udp", act: garbage},
}

func nonce() string { return strconv.FormatUint(rand.Uint64(), 36) }

func getWith(target string, fields ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
}

// slowRequest sends the next byte of a request that never ends.
func slowRequest(c *hostileConn) error {
	const request = "GET /timestamp HTTP/1.1\r\nHost: a\r\nX-Long: "
	at := c.step - 1
	if at >= len(request) {
		return c.send("a")
	}
	return c.send(request[at : at+1])
}

// asGuest acts as the user with little quota.
func asGuest(act func(*hostileConn) error) func(*hostileConn) error {
	return func(c *hostileConn) error {
		if c.step > 1 {
			return act(c)
		}
		if err := c.send("AUTH " + c.Guest[0] + " " + c.Guest[1] + "\r\n"); err != nil {
			return err
		}
		return c.skip()
	}
}

// withoutRights asks for what needs a role that nobody without credentials has.
func withoutRights(c *hostileConn) error {
	if c.index%4 == 0 {
		return c.ask("WORKER LEASE " + session() + " " + strconv.FormatInt(time.Now().UnixMilli(), 10) + " 3600000\r\n")
	}
	return c.get([]string{
		getWith("/metrics"), getWith("/debug/pprof/heap"),
		"POST /admin/drain HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
	}[c.index%4-1])
}

// foreignPage asks as the browser of somebody on this machine does for the page of another site: of one whose
// name resolves to this machine, or across sites. The last would move the time of everybody.
func foreignPage(c *hostileConn) error {
	floor := isotone.Timestamp{Time: uint64(time.Now().Add(5 * time.Second).UnixNano())}
	return c.get([]string{
		"GET /admin/members HTTP/1.1\r\nHost: rebound.example\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: https://other.example\r\n\r\n",
		"GET /timestamp?floor=" + floor.String() + " HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n",
	}[c.step%3])
}

// holdQUIC keeps a connection open, and sends nothing.
func holdQUIC(c *hostileConn) error {
	if err := c.conn.(HostileQUICConn).Ended(); err != nil {
		return err // the node has closed it
	}
	c.served.Add(1)
	return nil
}

func session() string {
	const digits = "0123456789abcdef"
	b := make([]byte, 16)
	for i := range b {
		b[i] = digits[1+rand.IntN(15)]
	}
	return string(b)
}

// oversizedHTTP sends a request line, or a header, of 64 KiB.
func oversizedHTTP(c *hostileConn) error {
	long := strings.Repeat("a", 64<<10)
	request := getWith("/timestamp?" + long)
	if c.index%2 == 0 {
		request = getWith("/timestamp", "X-Long: "+long)
	}
	if err := c.get(request); err != nil {
		return err
	}
	return errAgain
}

// oversizedRESP announces a gigabyte, a hundred million arguments, or sends a line without end.
func oversizedRESP(c *hostileConn) error {
	if err := c.ask([]string{
		"*1\r\n$999999999\r\n" + strings.Repeat("a", 32<<10), "*99999999\r\n$2\r\nTS\r\n", "PING " + strings.Repeat("a", 64<<10),
	}[c.index%3]); err != nil {
		return err
	}
	return errAgain
}

// oversizedThrift announces a frame, or a name, of 2 GiB.
func oversizedThrift(c *hostileConn) error {
	if err := c.send([]string{"\x7f\xff\xff\xff\x80\x01\x00\x01", "\x80\x01\x00\x01\x7f\xff\xff\xff" + strings.Repeat("a", 4<<10)}[c.index%2]); err != nil {
		return err
	}
	return c.skip() // the node closes the connection, or answers with an exception
}

// unread pipelines requests, as many as the node takes at once, and reads no answer.
func unread(c *hostileConn) error {
	text := strings.Repeat("TS\r\n", 100)
	if c.index%2 == 0 {
		text = strings.Repeat(getWith("/timestamp?n=4096"), 4)
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_ = c.send(text) // the rest does not matter
	return nil
}

// multi fills the queue of a transaction that never runs. Beyond 1,024 commands it is refused.
func multi(c *hostileConn) error {
	if c.step == 1 {
		return c.ask("MULTI\r\n")
	}
	const each = 100
	if err := c.send(strings.Repeat("TS 1000\r\n", each)); err != nil {
		return err
	}
	for range each {
		if err := c.ask(""); err != nil {
			return err
		}
	}
	return nil
}

// hoard leases a worker for another session each time.
func hoard(c *hostileConn) error {
	return c.ask("WORKER LEASE " + session() + " " + strconv.FormatInt(time.Now().UnixMilli(), 10) + " 5000\r\n")
}

// stream opens a stream of a live document, and reads it.
func stream(c *hostileConn) error {
	if c.step == 1 {
		if err := c.send(getWith("/live/state/stream")); err != nil {
			return err
		}
		line, err := c.read.ReadString('\n')
		if err != nil {
			return err
		}
		if !strings.HasPrefix(line, "HTTP/1.1 200") {
			c.refused.Add(1)
			return errAgain
		}
		c.served.Add(1)
	}
	return c.drain()
}

// streams sends many requests over HTTP/2 without TLS, and takes each back at once if reset is
// set.
func streams(c *hostileConn, count int, reset bool) error {
	const (
		headers, rstStream, settings = 1, 3, 4
		endStreamAndHeaders          = 0x5
		cancel                       = "\x00\x00\x00\x08"
		// HPACK: GET, http, and the path and authority as literals (RFC 7541).
		request = "\x82\x86\x04\x0a/timestamp\x01\x01a"
	)
	var b []byte
	if c.step == 1 {
		b = appendFrame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), settings, 0, 0, "")
	}
	for i := range count {
		id := uint32(2*((c.step-1)*count+i) + 1)
		b = appendFrame(b, headers, endStreamAndHeaders, id, request)
		if reset {
			b = appendFrame(b, rstStream, 0, id, cancel)
		}
	}
	if err := c.send(string(b)); err != nil {
		return err
	}
	c.served.Add(1)
	return c.drain()
}

// appendFrame appends a frame of HTTP/2 (RFC 9113 §4.1).
func appendFrame(b []byte, kind, flags byte, stream uint32, payload string) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// garbage sends a packet of noise. Every second one looks like the first of a QUIC connection.
func garbage(c *hostileConn) error {
	const initialSize = 1200 // RFC 9000 §14.1
	b := make([]byte, initialSize)
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], rand.Uint64())
	}
	if c.step%2 == 0 {
		copy(b, "\xc3\x00\x00\x00\x01\x08") // long header, version 1, destination ID of 8 bytes
		copy(b[14:], "\x08")                // source ID of 8 bytes
		copy(b[23:], "\x00\x44\x8c")        // no token; the length of the rest
	}
	_, err := c.conn.Write(b)
	return err
}
