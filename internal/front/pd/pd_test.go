package pd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/pd"
)

// post returns the message and the status of the answer to a call.
func post(t *testing.T, cfg pd.Config, path, body string, secure bool) (message, status, text string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/grpc")
	if r.TLS = nil; secure {
		r.TLS = &tls.ConnectionState{}
	}
	w := httptest.NewRecorder()
	pd.New(cfg).ServeHTTP(w, r)
	if w.Body.Len() > 0 {
		b, rest, err := grpc.ParseFrame(w.Body.Bytes())
		if err != nil || b == nil || len(rest) > 0 {
			t.Fatalf("%s: the answer %x is not one message: %v", path, w.Body.Bytes(), err)
		}
		message = string(b)
	}
	field := func(name string) string { return w.Header().Get(name) + w.Header().Get(http.TrailerPrefix+name) }
	return message, field("Grpc-Status"), field("Grpc-Message")
}

const empty = "\x00\x00\x00\x00\x00"

func threeNodes() *front.Status {
	return &front.Status{ClusterID: testCluster, NodeID: 1, Leader: 2, Members: []front.Member{
		{NodeID: 1, Addr: "a:8080"}, {NodeID: 2, Addr: "[::1]:8081"}, {NodeID: 3, Addr: "c:9000", Learner: true}, {NodeID: 4}, {NodeID: 5, Addr: "e:65000"},
	}}
}

func TestMembers_HavePortsAsFarFromThoseOfClients(t *testing.T) {
	want := func(scheme string) string {
		list := []pd.Member{{Name: "isotone-1", ID: 1, URL: scheme + "a:10000"}, {Name: "isotone-2", ID: 2, URL: scheme + "[::1]:10001"}}
		return string(pd.AppendMembers(nil, testCluster, list, 1, nil))
	}
	cfg := pd.Config{Status: threeNodes, Port: 10_000, ClientPort: 8080}
	for scheme, secure := range map[string]bool{"http://": false, "https://": true} {
		if got, status, _ := post(t, cfg, "/pdpb.PD/GetMembers", empty, secure); got != want(scheme) || status != "0" {
			t.Errorf("got %q with status %s, want %q", got, status, want(scheme))
		}
	}
}

// After an error in the header, clients ask the next member.
func TestMembers_FailsWhileNoLeaderIsKnown(t *testing.T) {
	for want, change := range map[string]func(*front.Status){
		"no leader is known":   func(s *front.Status) { s.Leader = 0 },
		"does not know the ID": func(s *front.Status) { s.ClusterID = 0 },
	} {
		status := threeNodes()
		change(status)
		observed := ""
		got, code, _ := post(t, pd.Config{Status: func() *front.Status { return status }, Port: 10_000, ClientPort: 8080,
			Observe: func(_, code string, _ int, _ time.Duration) { observed += code }}, "/pdpb.PD/GetMembers", empty, false)
		if code != "0" || !strings.Contains(got, want) || strings.Contains(got, "isotone-") || observed != "no_leader" {
			t.Errorf("got %q with status %s, observed as %s; want %q in the header, and no members", got, code, observed, want)
		}
	}
}

func TestServer_OtherMethods(t *testing.T) {
	status := threeNodes()
	cfg := pd.Config{Status: func() *front.Status { return status }}
	if got, _, _ := post(t, cfg, "/pdpb.PD/GetClusterInfo", empty, false); got != string(pd.AppendClusterInfo(nil, testCluster, nil, nil)) {
		t.Errorf("GetClusterInfo: %q", got)
	}
	if got, _, _ := post(t, cfg, "/grpc.health.v1.Health/Check", empty, false); got != "\x08\x01" {
		t.Errorf("health: %q, want SERVING", got)
	}
	status.NotReadyTimestamps = "no quorum"
	if got, _, _ := post(t, cfg, "/grpc.health.v1.Health/Check", empty, false); got != "\x08\x02" {
		t.Errorf("health: %q, want NOT_SERVING", got)
	}
	if _, code, text := post(t, cfg, "/pdpb.PD/GetRegion", empty, false); code != "12" || !strings.Contains(text, "/pdpb.PD/GetRegion: this is Isotone") {
		t.Errorf("an unknown method: status %s, %q", code, text)
	}
	if _, code, _ := post(t, cfg, "/pdpb.PD/GetMembers", "", false); code != "3" {
		t.Errorf("no message: status %s", code)
	}
	w := httptest.NewRecorder()
	pd.New(cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/timestamp", nil))
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("GET /timestamp: %d", w.Code)
	}
}

// waiting is a body that does not come until it is closed.
type waiting struct {
	begun func()
	end   chan struct{}
}

func (w *waiting) Read([]byte) (int, error) {
	w.begun()
	<-w.end
	return 0, io.EOF
}

// What clients can make a node hold is bounded over all connections.
func TestUnary_CallsThatWaitForTheirRequestAreBounded(t *testing.T) {
	const most = 4096
	s := pd.New(pd.Config{Status: threeNodes, Port: 10_000, ClientPort: 8080})
	ask := func(body io.Reader) (status string) {
		r := httptest.NewRequest(http.MethodPost, "/pdpb.PD/GetMembers", body)
		r.Header.Set("Content-Type", "application/grpc")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Header().Get("Grpc-Status") + w.Header().Get(http.TrailerPrefix+"Grpc-Status")
	}
	var calls, begun sync.WaitGroup
	body := &waiting{begun: begun.Done, end: make(chan struct{})}
	begun.Add(most)
	for range most {
		calls.Go(func() { ask(body) })
	}
	begun.Wait()
	if status := ask(strings.NewReader(empty)); status != "8" {
		t.Errorf("one more: status %s, want RESOURCE_EXHAUSTED", status)
	}
	close(body.end)
	calls.Wait()
	if status := ask(strings.NewReader(empty)); status != "0" {
		t.Errorf("after the others: status %s", status)
	}
}

// A client whose calls are refused, or that takes them back, is answered one by one for a while, and then loses its connection.
func TestUnary_AFloodOfRefusedCallsEndsItsConnection(t *testing.T) {
	const most = 256
	takenBack, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		roles access.Roles
		ctx   context.Context
	}{"refused": {0, t.Context()}, "taken back": {access.All, takenBack}} {
		control, err := access.Open(access.Config{Anonymous: &c.roles, Now: func() time.Duration { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		s := pd.New(pd.Config{Status: threeNodes, Port: 10_000, ClientPort: 8080, Access: control})
		for i := range most + 1 {
			r := httptest.NewRequestWithContext(c.ctx, http.MethodPost, "/pdpb.PD/GetMembers", strings.NewReader(empty))
			r.Header.Set("Content-Type", "application/grpc")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if closes := w.Header().Get("Connection") == "close"; closes != (i == most) {
				t.Fatalf("%s: call %d: %v", name, i, w.Header())
			}
		}
	}
}

// TestMembers_NameTheOwnerToThoseWhoAreBound, as it answers Tso to them, and others the leader.
func TestMembers_NameTheOwnerToThoseWhoAreBound(t *testing.T) {
	control := openUsers(t, `{"users": {"bound": {"roles": ["timestamps"], "timeline": "a"}, "orphan": {"roles": ["timestamps"], "timeline": "b"}, "free": {"roles": ["timestamps"]}}}`)
	s := pd.New(pd.Config{Status: threeNodes, Port: 10_000, ClientPort: 8080, Access: control, Timelines: table{"a": {NodeID: 1}}})
	for user, want := range map[string]func(list []pd.Member) []byte{
		"bound":  func(list []pd.Member) []byte { return pd.AppendMembers(nil, testCluster, list, 0, nil) },
		"free":   func(list []pd.Member) []byte { return pd.AppendMembers(nil, testCluster, list, 1, nil) },
		"orphan": func([]pd.Member) []byte { return nil }, // an error in the header
	} {
		r := httptest.NewRequest(http.MethodPost, "/pdpb.PD/GetMembers", strings.NewReader(empty))
		r.Header.Set("Content-Type", "application/grpc")
		r.TLS = &tls.ConnectionState{VerifiedChains: chainsOf(user)}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		message, _, err := grpc.ParseFrame(w.Body.Bytes())
		list := want([]pd.Member{{Name: "isotone-1", ID: 1, URL: "https://a:10000"}, {Name: "isotone-2", ID: 2, URL: "https://[::1]:10001"}})
		if err != nil || list != nil && !bytes.Equal(message, list) || list == nil && !bytes.Contains(message, []byte("no leader is known")) {
			t.Errorf("%s: %q, %v", user, message, err)
		}
	}
}

// openUsers opens a list of users.
func openUsers(t *testing.T, list string) *access.Control {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.json")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	control, err := access.Open(access.Config{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return control
}

// chainsOf are those of a certificate that names a user.
func chainsOf(user string) [][]*x509.Certificate {
	return [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: user}, NotAfter: time.Now().Add(time.Hour)}}}
}
