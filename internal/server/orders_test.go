package server_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/host/config"
)

// refused is what an asker returns for an answer that says that its user may not use the order.
const refused = "refused"

// orders are the timelines of the tests. Their timestamps, and those of the default order, are hours apart, and so tell what they are of.
var orders = []struct {
	name  string
	ahead time.Duration
}{{"a/x", 18 * time.Hour}, {"b/y", 12 * time.Hour}, {"c", 6 * time.Hour}, {"", -time.Hour}}

// orderOf returns the order that a timestamp is of.
func orderOf(t isotone.Timestamp) string {
	for _, o := range orders {
		if t.Time >= uint64(time.Now().Add(o.ahead).UnixNano()) {
			return o.name
		}
	}
	return "of no order: " + t.String()
}

// orderUsers says what users may have: by what they name, the order that they get. What is not there is refused.
var orderUsers = map[string]struct {
	keys string
	may  map[string]string
}{
	"free":   {``, map[string]string{"": "", "a/x": "a/x", "b/y": "b/y", "c": "c"}},
	"bound":  {`, "timeline": "a/x"`, map[string]string{"": "a/x", "a/x": "a/x"}},
	"both":   {`, "timeline": "c", "timelines": ["b/*"]`, map[string]string{"": "c", "c": "c", "b/y": "b/y"}},
	"listed": {`, "timelines": ["a/*", "c"]`, map[string]string{"a/x": "a/x", "c": "c"}},
	"any":    {`, "timelines": ["*"]`, map[string]string{"a/x": "a/x", "b/y": "b/y", "c": "c"}},
}

// orderNode is a node with the users and the orders.
type orderNode struct {
	*testnode.Node
	*testing.T
	signer *rig.Signer
}

func newOrderNode(t *testing.T) *orderNode {
	t.Helper()
	n := &orderNode{T: t, signer: rig.NewSigner(t)}
	var users []string
	for name, u := range orderUsers {
		users = append(users, fmt.Sprintf(`%q: {"roles": ["timestamps", "ids", "floors", "workers", "timelines", "locks", "frontier"], "secrets": ["HASH"]%s}`, name, u.keys))
	}
	users = append(users, `"ops": {"roles": ["all"], "secrets": ["HASH"]}`)
	cert, key := n.signer.Issue("node")
	n.Node = testnode.Guarded(t, `{"users": {`+strings.Join(users, ", ")+`}}`, func(s *config.Settings) {
		s.Timelines, s.Interval, s.PDPort, s.TLSCert, s.TLSKey, s.TLSClientCA = true, 5*time.Second, 0, cert, key, n.signer.File
	})
	for _, o := range orders {
		if o.name != "" {
			above := strconv.FormatInt(time.Now().Add(o.ahead+time.Minute).UnixNano(), 10)
			if status, body := n.change("ops", fmt.Sprintf(`{"action": "create", "names": [%q], "time": %q}`, o.name, above)); status != http.StatusOK {
				t.Fatalf("create %s: %d %s", o.name, status, body)
			}
		}
	}
	return n
}

// change posts a change of timelines.
func (n *orderNode) change(user, body string) (status int, answer string) {
	n.Helper()
	return n.admin(user, http.MethodPost, "", body)
}

// admin asks /admin/timelines.
func (n *orderNode) admin(user, method, query, body string) (status int, answer string) {
	n.Helper()
	r, err := http.NewRequestWithContext(rig.Soon(n.T), method, "http://"+n.Client+"/admin/timelines"+query, strings.NewReader(body))
	if err != nil {
		n.Fatal(err)
	}
	r.Header.Set("Authorization", rig.Bearer(user, rig.Secret))
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		n.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		n.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// forms are queries of /timestamp, and how its answers are read.
var forms = map[string]func(body []byte) (isotone.Timestamp, error){
	"":                        binaryFirst,
	"n=2":                     binaryFirst,
	"n=3&mode=lease":          binaryFirst,
	"mode=quorum":             binaryFirst,
	"floor=" + lowFloor:       binaryFirst,
	"format=range&n=100":      binaryFirst,
	"x=1&y":                   binaryFirst,
	"format=json&n=2":         jsonFirst,
	"format=u64":              u64First,
	"format=u64&mode=lease":   u64First,
	"format=u64&n=100":        u64First,
	"n=100&floor=" + lowFloor: binaryFirst,
}

const lowFloor = "00000000000000010000000000000001"

func binaryFirst(b []byte) (t isotone.Timestamp, err error) {
	return t, t.UnmarshalBinary(b[:min(len(b), isotone.TimestampSize)])
}

func u64First(b []byte) (isotone.Timestamp, error) {
	if len(b) < isotone.Timestamp64Size {
		return isotone.Timestamp{}, io.ErrUnexpectedEOF
	}
	return isotone.Timestamp64(binary.BigEndian.Uint64(b)).Timestamp(), nil
}

func jsonFirst(b []byte) (isotone.Timestamp, error) {
	var a struct {
		Timestamps []struct{ Time, Index string }
	}
	if err := json.Unmarshal(b, &a); err != nil || len(a.Timestamps) == 0 {
		return isotone.Timestamp{}, fmt.Errorf("%.80s, %w", b, err)
	}
	n, err := strconv.ParseUint(a.Timestamps[0].Time, 10, 64)
	return isotone.Timestamp{Time: n}, err
}

// asker asks for a timestamp as a user, of a timeline or of none, and returns the order that it is of.
type asker func(user, named string) string

// isU64 reports whether a way asks for 64-bit timestamps. A timeline whose time is ahead has few of them.
func isU64(way string) bool {
	return strings.Contains(way, "64") || way == "PD"
}

// keyed reports whether the requests of a way have to name a timeline.
func keyed(way string) bool {
	return strings.Contains(way, "TSIN") || strings.Contains(way, "TS64IN") || strings.Contains(way, "oracle")
}

// sealed finds the timeline that a fault names because it is sealed.
var sealed = regexp.MustCompile(`the timeline \\?(?:"|%22)([a-z/]+)\\?(?:"|%22) is sealed`)

// orderOfFault returns the order that a fault is about, or refused.
func orderOfFault(text string) (order string, ok bool) {
	if found := sealed.FindStringSubmatch(text); found != nil {
		return found[1], true
	}
	return refused, strings.Contains(text, "may not use")
}

// read returns the order of an answer.
func (n *orderNode) read(what string, status int, body []byte, err error, first func([]byte) (isotone.Timestamp, error)) string {
	n.Helper()
	if err != nil {
		n.Fatalf("%s: %v", what, err)
	}
	if order, ok := orderOfFault(string(body)); ok && (status == http.StatusForbidden) == (order == refused) {
		return order
	}
	t, err := first(body)
	if status != http.StatusOK || err != nil {
		n.Fatalf("%s: %d %.200q, %v", what, status, body, err)
	}
	return orderOf(t)
}

// overHTTP are the ways to GET /timestamp.
func (n *orderNode) overHTTP(askers map[string]asker) {
	conns := map[string]*rig.HTTPConn{}
	ofUser := map[string]map[string]http.RoundTripper{}
	transport := func(kind, user string) http.RoundTripper {
		if ofUser[user] == nil {
			h2 := &http.Transport{TLSClientConfig: n.signer.Client(user), ForceAttemptHTTP2: true}
			cfg := n.signer.Client(user)
			cfg.NextProtos = []string{"http/1.1"}
			h1 := &http.Transport{TLSClientConfig: cfg}
			h3 := &http3.Transport{TLSClientConfig: n.signer.Client(user)}
			clear := &http.Transport{Protocols: new(http.Protocols)}
			clear.Protocols.SetUnencryptedHTTP2(true)
			n.Cleanup(func() {
				h1.CloseIdleConnections()
				h2.CloseIdleConnections()
				clear.CloseIdleConnections()
				_ = h3.Close()
			})
			ofUser[user] = map[string]http.RoundTripper{"HTTP/1 and TLS": h1, "HTTP/2 and TLS": h2, "HTTP/3": h3, "HTTP/2 in clear": clear}
		}
		return ofUser[user][kind]
	}
	for form, first := range forms {
		path := func(named string) string {
			if named == "" {
				return "/timestamp?" + form
			}
			return "/timestamp?" + form + "&timeline=" + strings.ReplaceAll(named, "/", "%2F")
		}
		askers["HTTP/1 "+form] = func(user, named string) string { // one connection for all users
			if conns[form] == nil {
				conns[form] = rig.DialHTTP(n.T, n.Client, nil)
			}
			status, _, body := conns[form].Ask(path(named), rig.Bearer(user, rig.Secret))
			return n.read(form, status, []byte(body), nil, first)
		}
		for _, kind := range []string{"HTTP/1 and TLS", "HTTP/2 and TLS", "HTTP/3", "HTTP/2 in clear"} {
			if kind != "HTTP/1 and TLS" && !slices.Contains([]string{"", "n=3&mode=lease", "n=100&floor=" + lowFloor, "format=u64&mode=lease"}, form) {
				continue // an address may have few requests refused
			}
			for _, field := range []string{"", "X-Cold"} {
				askers[kind+" "+form+" "+field] = func(user, named string) string {
					r, err := http.NewRequestWithContext(rig.Soon(n.T), http.MethodGet, "https://"+n.Client+path(named), nil)
					if err != nil {
						n.Fatal(err)
					}
					if field != "" {
						r.Header.Set(field, "1")
					}
					if kind == "HTTP/2 in clear" {
						r.URL.Scheme = "http"
						r.Header.Set("Authorization", rig.Basic(user, rig.Secret))
					}
					a, err := transport(kind, user).RoundTrip(r)
					if err != nil {
						n.Fatalf("%s: %v", kind, err)
					}
					defer a.Body.Close()
					body, err := io.ReadAll(a.Body)
					return n.read(kind+" "+form, a.StatusCode, body, err, first)
				}
			}
		}
	}
}

// overOracles are the ways to ask the oracle of reads and writes of a timeline.
func (n *orderNode) overOracles(askers map[string]asker) {
	answer := func(what, text, digits string) string {
		if order, ok := orderOfFault(text); ok && order == refused {
			return order
		}
		ms, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			n.Fatalf("%s: %.200q", what, text)
		}
		return orderOf(isotone.Timestamp{Time: ms * uint64(time.Millisecond)})
	}
	redis := rig.DialRedis(n.T, n.Client, nil)
	askers["Redis, oracle"] = func(user, named string) string {
		redis.Does("AUTH "+user+" "+rig.Secret, "+OK")
		redis.Send("ORACLE " + named + " READ")
		text := redis.Receive()
		return answer("ORACLE", text, strings.TrimPrefix(text, ":"))
	}
	for _, op := range []string{"read", "peek", "apply&at=1"} {
		askers["HTTP, oracle, "+op] = func(user, named string) string {
			_, _, body := rig.DialHTTP(n.T, n.Client, nil).Ask("/oracle?op="+op+"&timeline="+strings.ReplaceAll(named, "/", "%2F"), rig.Bearer(user, rig.Secret))
			return answer(op, body, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(body), `{"ms":`), "}"))
		}
	}
}

// overRedis are the ways to ask TS, TS64, TSIN and TS64IN, with one connection for all users, and one of the certificate's.
func (n *orderNode) overRedis(askers map[string]asker) {
	shared := rig.DialRedis(n.T, n.Client, nil)
	ofCert := map[string]*rig.RedisConn{}
	for _, form := range []string{"", "1", "2 QUORUM", "3 LEASE", "FLOOR " + lowFloor, "2 LEASE FLOOR " + lowFloor} {
		for _, name := range []string{"TS", "TS64", "TSIN", "TS64IN"} {
			ask := func(c *rig.RedisConn, named, before, after string) string {
				command := name + " " + form
				switch {
				case keyed(name):
					command = name + " " + named + " " + form
				case named != "":
					command += " TIMELINE " + named
				}
				if before != "" {
					c.Does(before, "+OK")
				}
				c.Send(command)
				if after != "" {
					if got := c.Receive(); got != "+QUEUED" {
						n.Fatalf("%s: %q", command, got)
					}
					c.Send(after)
					if line, _ := c.R.ReadString('\n'); line != "*1\r\n" {
						n.Fatalf("%s %s: %q", command, after, line)
					}
				}
				line, err := c.R.ReadString('\n')
				if err != nil {
					n.Fatalf("%s: %v", command, err)
				}
				if order, ok := orderOfFault(line); ok && strings.HasPrefix(line, "-NOPERM") == (order == refused) {
					return order
				}
				body := make([]byte, 0, 32)
				if size, err := strconv.Atoi(strings.TrimSpace(line[1:])); err == nil && line[0] == '$' {
					body = body[:size+2]
				}
				if _, err := io.ReadFull(c.R, body); err != nil || len(body) < 2 {
					n.Fatalf("%s: %q, %v", command, line, err)
				}
				body = body[:len(body)-2]
				if !isU64(name) {
					return n.read(command, http.StatusOK, body, nil, binaryFirst)
				}
				t, err := isotone.ParseTimestamp64(string(body))
				return n.read(command, http.StatusOK, nil, err, func([]byte) (isotone.Timestamp, error) { return t.Timestamp(), nil })
			}
			askers["Redis "+name+" "+form] = func(user, named string) string { return ask(shared, named, "AUTH "+user+" "+rig.Secret, "") }
			askers["Redis MULTI "+name+" "+form] = func(user, named string) string {
				shared.Does("AUTH "+user+" "+rig.Secret, "+OK")
				return ask(shared, named, "MULTI", "EXEC")
			}
			askers["Redis TLS "+name+" "+form] = func(user, named string) string {
				if ofCert[user] == nil {
					ofCert[user] = rig.DialRedis(n.T, n.Client, n.signer.Client(user))
				}
				return ask(ofCert[user], named, "", "")
			}
		}
	}
}

// overGRPC are the ways to ask isotone.v1.Timestamps, and pdpb.PD, whose requests name no timeline.
func (n *orderNode) overGRPC(askers map[string]asker) {
	const wide, count = "", "\x08\x02"
	for _, path := range []string{grpc.PathTimestampsGet, grpc.PathTimestampsStream} {
		for _, get := range []string{wide, count, "\x10\x02"} {
			for _, field := range []string{"", "X-Cold"} {
				askers[fmt.Sprintf("gRPC %s %x %s", path, get, field)] = func(user, named string) string {
					message := []byte(get)
					if named != "" {
						message = append(append(message, 0x32, byte(len(named))), named...)
					}
					if path == grpc.PathTimestampsStream {
						message = append([]byte{0x08, 1, 0x12, byte(len(message))}, message...)
					}
					return n.readRange(path, n.call(n.Client, path, user, field, message))
				}
			}
		}
	}
	askers["PD"] = func(user, _ string) string {
		a := n.call(n.Member.PDAddr, "/pdpb.PD/Tso", user, "", tsoRequest(n.Node))
		if order, ok := orderOfFault(a.fault); ok && (a.status == "7") == (order == refused) {
			return order
		}
		if a.status != "0" {
			n.Fatalf("PD: %+v", a)
		}
		return ""
	}
}

// readRange returns the order of an answer with a range, of a call or of a request on a stream.
func (n *orderNode) readRange(path string, a called) string {
	n.Helper()
	fault, code := a.fault, a.status
	if path == grpc.PathTimestampsStream && !bytes.Contains(a.message, []byte("\x0a\x10")) && !bytes.Contains(a.message, []byte("\x12\x12")) {
		fault, code = string(a.message), "" // the fault of one request is an answer
	}
	if order, ok := orderOfFault(fault); ok && (code == "" || (code == "7") == (order == refused)) {
		return order
	}
	if i := bytes.Index(a.message, []byte("\x0a\x10")); code == "0" && i >= 0 {
		return n.read(path, http.StatusOK, a.message[i+2:], nil, binaryFirst)
	}
	if code != "0" {
		n.Fatalf("%s: %+v", path, a)
	}
	return "" // of 64 bits
}

// called is the answer to a call of gRPC.
type called struct {
	message       []byte
	status, fault string
}

// call makes a call of gRPC.
func (n *orderNode) call(addr, path, user, field string, message []byte) (c called) {
	n.Helper()
	tr := &http.Transport{TLSClientConfig: n.signer.Client(user), ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(rig.Soon(n.T), http.MethodPost, "https://"+addr+path, bytes.NewReader(grpc.EndFrame(append(grpc.BeginFrame(nil), message...), 0)))
	if err != nil {
		n.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	if field != "" {
		r.Header.Set(field, "1")
	}
	a, err := tr.RoundTrip(r)
	if err != nil {
		n.Fatal(err)
	}
	defer a.Body.Close()
	c.message, err = io.ReadAll(a.Body)
	if err != nil {
		n.Fatal(err)
	}
	c.status, c.fault = a.Trailer.Get("Grpc-Status")+a.Header.Get("Grpc-Status"), a.Trailer.Get("Grpc-Message")+a.Header.Get("Grpc-Message")
	return c
}

// TestOrders_NobodyGetsAnother: by no protocol and no parameter does a user get timestamps of an order that the list of users does not give.
func TestOrders_NobodyGetsAnother(t *testing.T) {
	t.Parallel()
	n := newOrderNode(t)
	askers := map[string]asker{}
	n.overHTTP(askers)
	n.overRedis(askers)
	n.overOracles(askers)
	n.overGRPC(askers)
	canName := func(way, name string) bool {
		if name == "" {
			return !keyed(way)
		}
		return way != "PD"
	}
	check := func(when string, are func(way string) bool) {
		for way, ask := range askers {
			for user, allowed := range orderUsers {
				for _, o := range orders {
					want, may := allowed.may[o.name]
					if !may {
						want = refused
					}
					if !are(way) || !canName(way, o.name) {
						continue
					}
					if got := ask(user, o.name); got != want {
						t.Errorf("%s, %s: user %s names %q and gets %q, want %q", when, way, user, o.name, got, want)
					}
				}
			}
		}
	}
	check("by the time", func(way string) bool { return !isU64(way) })
	for _, o := range orders {
		if o.name != "" {
			n.change("ops", fmt.Sprintf(`{"action": "seal", "names": [%q]}`, o.name))
		}
	}
	check("by the fault of a sealed timeline", isU64)
}
