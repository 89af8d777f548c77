package main

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone"
	accesslist "github.com/isotone/isotone/internal/host/access"
	"github.com/isotone/isotone/internal/host/config"
)

// testHash is the hash of testSecret. It is made once, since hashing is slow.
var testHash = sync.OnceValue(func() string { return accesslist.HashSecret(testSecret) })

// userList is a list of users in a file. HASH stands for the hash of testSecret.
type userList struct {
	t       *testing.T
	file    string
	written int
}

func newUserList(t *testing.T, text string) *userList {
	t.Helper()
	l := &userList{t: t, file: filepath.Join(t.TempDir(), "users.json")}
	l.write(text)
	return l
}

func (l *userList) write(text string) {
	l.t.Helper()
	draft := l.file + ".new"
	if err := os.WriteFile(draft, []byte(strings.ReplaceAll(text, "HASH", testHash())), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.written++ // two versions written within one tick of the file system's clock look alike
	at := time.Now().Add(time.Duration(l.written) * time.Second)
	if err := os.Chtimes(draft, at, at); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(draft, l.file); err != nil {
		l.t.Fatal(err)
	}
}

// usersOfTests has a user for each of the things that a client may want.
const usersOfTests = `{"users": {
	"web": {"roles": ["timestamps", "live"], "secrets": ["HASH"]},
	"ids": {"roles": ["ids", "workers"], "secrets": ["HASH"]},
	"ops": {"roles": ["all"], "secrets": ["HASH"]},
	"default": {"roles": ["timestamps"], "secrets": ["HASH"]}
}}`

// guardedNode is a node with a list of users.
type guardedNode struct {
	client, admin, metrics, thrift string // addresses
	users                          *userList
}

// startGuarded runs a node with that list; "": none.
func startGuarded(t *testing.T, text string, change func(*config.Settings)) *guardedNode {
	t.Helper()
	n := &guardedNode{}
	_, so := runMemberSockets(t, func(s *config.Settings) {
		s.MetricsAddr = "127.0.0.1:0"
		if text != "" {
			n.users = newUserList(t, text)
			s.ACLFile = n.users.file
		}
		if change != nil {
			change(s)
		}
	})
	n.client, n.admin, n.metrics, n.thrift = so.http.Addr().String(), so.admin.Addr().String(), so.metrics.Addr().String(), so.thrift.Addr().String()
	within(t, "the node is ready", func() bool {
		status, _ := fetch(t, "http://"+n.admin+"/readyz")
		return status == 200
	})
	return n
}

// dial opens a connection, with TLS if cfg is not nil.
func dial(t *testing.T, addr string, cfg *tls.Config) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, testWait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testWait))
	if cfg != nil {
		return tls.Client(c, cfg)
	}
	return c
}

// httpConn is a connection for HTTP/1.1.
type httpConn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dialHTTP(t *testing.T, addr string, cfg *tls.Config) *httpConn {
	t.Helper()
	c := dial(t, addr, cfg)
	return &httpConn{t, c, bufio.NewReader(c)}
}

// bearer and basic are the two forms of Authorization.
func bearer(name, secret string) string { return "Bearer " + name + "~" + secret }
func basic(name, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+secret))
}

// send writes a request for path.
func (c *httpConn) send(path, authorization string) {
	c.t.Helper()
	if authorization != "" {
		authorization = "Authorization: " + authorization + "\r\n"
	}
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+authorization+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads an answer.
func (c *httpConn) receive() (status int, header http.Header, body string) {
	c.t.Helper()
	answer, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodGet})
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

func (c *httpConn) ask(path, authorization string) (status int, header http.Header, body string) {
	c.t.Helper()
	c.send(path, authorization)
	return c.receive()
}

// question is a request, and the status of its answer.
type question struct {
	path, authorization string
	status              int
}

// questions has clients with every right and every fault.
var questions = []question{
	{"/timestamp", bearer("web", testSecret), 200},
	{"/timestamp", basic("web", testSecret), 200},
	{"/timestamp", bearer("ops", testSecret), 200},
	{"/timestamp?n=3", bearer("web", testSecret), 200},
	{"/api/snowflake", bearer("ids", testSecret), 200},
	{"/api/snowflake", bearer("web", testSecret), 403},
	{"/interval", bearer("web", testSecret), 404}, // as INTERVAL_MS is 0
	{"/interval?n=3", bearer("ids", testSecret), 403},
	{"/interval?wait=00000000000000000000000000000000", "", 401},
	{"/timestamp", "", 401},
	{"/timestamp", bearer("ops", testSecret), 200},
	{"/timestamp", bearer("ids", testSecret), 403},
	{"/timestamp", bearer("web", "wrong-wrong"), 401},
	{"/timestamp", bearer("web", testSecret), 200},
	{"/api/snowflake", "", 401},
	{"/timestamp", "Digest x", 401},
	{"/state", bearer("web", testSecret), 200},
	{"/state", bearer("ids", testSecret), 403},
	{"/timestamp", basic("ops", testSecret), 200},
	{"/metrics", bearer("web", testSecret), 403},
	{"/metrics", "", 401},
	{"/metrics", bearer("ops", testSecret), 200},
	{"/admin/members", "", 401},
	{"/admin/members", bearer("ids", testSecret), 403},
	{"/admin/members", basic("ops", testSecret), 200},
	{"/upgrade", "", 401},
	{"/up", "", 200},
	{"/members", "", 401},
	{"/members", bearer("ids", testSecret), 200},
}

// check checks an answer to q.
func (q *question) check(t *testing.T, status int, header http.Header, body string) {
	t.Helper()
	code := map[int]string{401: "unauthorized", 403: "forbidden"}[q.status]
	if status != q.status || code != "" && !strings.Contains(body, `"code":"`+code+`"`) || strings.Contains(body, testSecret) {
		t.Errorf("%s with %q: %d, want %d; %.200s", q.path, q.authorization, status, q.status, body)
	}
	if challenge := header.Get("WWW-Authenticate"); (challenge != "") != (q.status == 401) {
		t.Errorf("%s with %q: %d with the challenge %q", q.path, q.authorization, status, challenge)
	}
}

// TestClients_EachRequestOfAConnectionHasItsOwnAnswer, also if all are sent at once, and wherever
// the fast path ends.
func TestClients_EachRequestOfAConnectionHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	n := startGuarded(t, usersOfTests, nil)
	insecure := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	for i := range questions {
		turned := append(slices.Clone(questions[i:]), questions[:i]...)
		for _, cfg := range []*tls.Config{nil, insecure} {
			if cfg != nil && i%4 != 0 {
				continue
			}
			one, all := dialHTTP(t, n.client, cfg), dialHTTP(t, n.client, cfg)
			for _, q := range turned {
				status, header, body := one.ask(q.path, q.authorization)
				q.check(t, status, header, body)
				all.send(q.path, q.authorization)
			}
			for _, q := range turned {
				status, header, body := all.receive()
				q.check(t, status, header, body)
			}
		}
	}
}

// TestClients_OnTheFastPathRequestsAlternate between users in one pipeline, and stay there.
func TestClients_OnTheFastPathRequestsAlternate(t *testing.T) {
	t.Parallel()
	n := startGuarded(t, usersOfTests, nil)
	c := dialHTTP(t, n.client, nil)
	for range 20 {
		c.send("/timestamp", bearer("web", testSecret))
		c.send("/timestamp", bearer("ops", testSecret))
		c.send("/api/snowflake", basic("ids", testSecret))
		c.send("/timestamp", basic("default", testSecret))
	}
	last := isotone.Timestamp{}
	for i := range 80 {
		status, _, body := c.receive()
		if status != 200 {
			t.Fatalf("request %d: %d %s", i, status, body)
		}
		if i%4 == 2 {
			continue
		}
		var ts isotone.Timestamp
		if err := ts.UnmarshalBinary([]byte(body)); err != nil || ts.Compare(last) <= 0 {
			t.Fatalf("request %d: %v after %v, %v", i, ts, last, err)
		}
		last = ts
	}
	if conns := metric(t, n, `isotone_client_connections{protocol="http1"}`); conns < 1 {
		t.Errorf("%v connections on the fast path", conns)
	}
}

// metric returns a metric of the node.
func metric(t *testing.T, n *guardedNode, name string) float64 {
	t.Helper()
	_, body := fetch(t, "http://"+n.metrics+"/metrics")
	_, rest, found := strings.Cut(body, "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(line, 64)
	if !found || err != nil {
		t.Fatalf("the metric %s: %q, %v", name, line, err)
	}
	return v
}

func TestClients_HTTP2AsksEachRequest(t *testing.T) {
	n := startGuarded(t, usersOfTests, nil)
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	for _, q := range questions {
		q.askBy(t, tr, 2, "https://"+n.client)
	}
}

// TestClients_HTTP3AsksEachRequest, as the other versions do: each role, right and wrong credentials.
func TestClients_HTTP3AsksEachRequest(t *testing.T) {
	t.Parallel()
	n := startGuarded(t, usersOfTests, nil)
	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.Close()
	for _, q := range questions {
		q.askBy(t, tr, 3, "https://"+n.client)
	}
}

// redisConn is a connection for the protocol of Redis.
type redisConn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dialRedis(t *testing.T, addr string, cfg *tls.Config) *redisConn {
	t.Helper()
	c := dial(t, addr, cfg)
	return &redisConn{t, c, bufio.NewReader(c)}
}

// send writes commands, all at once. Each is words with spaces between.
func (c *redisConn) send(commands ...string) {
	c.t.Helper()
	var b strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the first line of an answer, after it has read all of it.
func (c *redisConn) receive() string {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%q, %v", line, err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if _, err := io.CopyN(io.Discard, c.r, int64(n+2)); err != nil {
			c.t.Fatal(err)
		}
	case '%':
		n *= 2
		fallthrough
	case '*':
		for range n {
			c.receive()
		}
	}
	return line
}

// does sends a command, and checks how its answer begins.
func (c *redisConn) does(command, want string) {
	c.t.Helper()
	c.send(command)
	if got := c.receive(); !strings.HasPrefix(got, want) || strings.Contains(got, testSecret) {
		c.t.Errorf("%s: %q, want %q", command, got, want)
	}
}

func TestClients_RESPAuthenticatesConnections(t *testing.T) {
	t.Parallel()
	n := startGuarded(t, usersOfTests, nil)
	c := dialRedis(t, n.client, nil)
	for _, step := range []struct{ command, want string }{
		{"TS", "-NOAUTH"}, {"PING", "-NOAUTH"}, {"HELLO 3", "-NOAUTH"}, {"SNOWFLAKE", "-NOAUTH"}, {"WORKER LEASE 1 1 1000", "-NOAUTH"}, {"INTERVAL", "-NOAUTH"},
		{"AUTH web wrong-wrong", "-WRONGPASS"}, {"TS", "-NOAUTH"},
		{"AUTH web " + testSecret, "+OK"}, {"TS", "$16"}, {"TS 3", "$16"}, {"PING", "+PONG"}, {"SNOWFLAKE", "-NOPERM"}, {"INTERVAL", "-ERR this node reads no cluster clock"},
		{"AUTH web wrong-wrong", "-WRONGPASS"}, {"TS", "$16"}, // as in Redis, the user stays
		{"AUTH ids " + testSecret, "+OK"}, {"TS", "-NOPERM"}, {"INTERVAL STAMP", "-NOPERM"}, {"SNOWFLAKE", ":"},
		{"RESET", "+RESET"}, {"SNOWFLAKE", "-NOAUTH"}, {"PING", "-NOAUTH"},
		{"AUTH " + testSecret, "+OK"}, {"TS", "$16"}, // the user default
		{"HELLO 3 AUTH ops wrong-wrong", "-WRONGPASS"}, {"HELLO 3 AUTH ops " + testSecret + " SETNAME x", "%"}, {"SNOWFLAKE", ":"}, {"CLIENT GETNAME", "$1"},
		{"MULTI", "+OK"}, {"TS", "+QUEUED"}, {"SNOWFLAKE", "+QUEUED"}, {"EXEC", "*2"},
		{"RESET", "+RESET"}, {"MULTI", "-NOAUTH"},
	} {
		c.does(step.command, step.want)
	}
}

// TestClients_RESPWaitsForAUTH: what was sent with it is answered by the rights that it gives.
func TestClients_RESPWaitsForAUTH(t *testing.T) {
	n := startGuarded(t, usersOfTests, nil)
	for _, auth := range []string{"AUTH web " + testSecret, "AUTH " + testSecret, "HELLO 3 AUTH ops " + testSecret} {
		for range 2 { // the second time the credentials are known
			c := dialRedis(t, n.client, nil)
			c.send("TS", auth, "TS", "TS", "RESET", "TS", auth, "TS")
			for i, want := range []string{"-NOAUTH", "", "$16", "$16", "+RESET", "-NOAUTH", "", "$16"} {
				if got := c.receive(); !strings.HasPrefix(got, want) || want == "" && got[0] == '-' {
					t.Errorf("%s: answer %d is %q, want %q", auth[:9], i, got, want)
				}
			}
		}
	}
}

// thriftCall asks for a worker ID by the binary protocol, and returns the type of the answer: 2 is
// a reply, 3 an exception.
func thriftCall(t *testing.T, c net.Conn) (kind byte, err error) {
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
