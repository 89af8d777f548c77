package server_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/host/config"
)

// pdCall makes a call with one request, and returns the first message of the answer, and its status.
func pdCall(t *testing.T, addr, method string, cfg *tls.Config, request []byte) (message []byte, status string, err error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: cfg, Protocols: new(http.Protocols)}
	defer tr.CloseIdleConnections()
	scheme := "http://"
	if tr.Protocols.SetUnencryptedHTTP2(cfg == nil); cfg != nil {
		tr.Protocols.SetHTTP2(true)
		scheme = "https://"
	}
	body := grpc.EndFrame(append(grpc.BeginFrame(nil), request...), 0)
	r, err := http.NewRequestWithContext(rig.Soon(t), http.MethodPost, scheme+addr+"/"+method, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, "", err
	}
	message, _, err = grpc.ParseFrame(text)
	return message, answer.Trailer.Get("Grpc-Status") + answer.Header.Get("Grpc-Status"), err
}

// tsoRequest asks n for a timestamp.
func tsoRequest(n *testnode.Node) []byte {
	return grpc.AppendVarint(grpc.AppendText(nil, 1, grpc.AppendVarint(nil, 1, n.Member.Node.Status().ClusterID)), 2, 1)
}

func withPD(more func(*config.Settings)) func(*config.Settings) {
	return func(s *config.Settings) {
		s.PDPort = 0
		if more != nil {
			more(s)
		}
	}
}

func TestPD_IsOffUnlessItIsAskedFor(t *testing.T) {
	if n := testnode.Guarded(t, "", nil); n.Member.PDAddr != "" {
		t.Errorf("it is served at %s", n.Member.PDAddr)
	}
}

// TestPD_HTTP1IsToldWhatIsThere, whatever it asks.
func TestPD_HTTP1IsToldWhatIsThere(t *testing.T) {
	n := testnode.Guarded(t, "", withPD(nil))
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST /pdpb.PD/Tso HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"} {
		c := rig.DialHTTP(t, n.Member.PDAddr, nil)
		_, _ = io.WriteString(c, request)
		if status, _, body := c.Receive(); status != http.StatusHTTPVersionNotSupported || !strings.Contains(body, "HTTP_PORT") || !strings.HasSuffix(body, "}}") {
			t.Errorf("%.10s: %d %s", request, status, body)
		}
	}
}

func TestPD_TimestampsNeedTheirRole(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("node")
	n := testnode.Guarded(t, rig.Users, withPD(func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.File }))
	for name, want := range map[string]string{"": "16", "web": "0", "ids": "7", "ops": "0", "stranger": "16"} {
		var cfg *tls.Config
		if name != "" {
			cfg = a.Client(name)
		}
		for _, method := range []string{"pdpb.PD/Tso", "pdpb.PD/GetMembers"} {
			if message, status, err := pdCall(t, n.Member.PDAddr, method, cfg, tsoRequest(n)); err != nil || status != want || (message != nil) != (want == "0") {
				t.Errorf("%q, %s: message %x, status %s, %v; want status %s", name, method, message, status, err, want)
			}
		}
	}
}

func TestPD_TLSIsRequiredWhereItIs(t *testing.T) {
	n := testnode.Guarded(t, "", withPD(func(s *config.Settings) { s.RequireTLS = true }))
	if _, status, err := pdCall(t, n.Member.PDAddr, "pdpb.PD/Tso", nil, tsoRequest(n)); err == nil {
		t.Errorf("without TLS: status %s", status)
	}
	cfg := &tls.Config{InsecureSkipVerify: true}
	if _, status, err := pdCall(t, n.Member.PDAddr, "pdpb.PD/Tso", cfg, tsoRequest(n)); err != nil || status != "0" {
		t.Errorf("with TLS: status %s, %v", status, err)
	}
	_, port, _ := net.SplitHostPort(n.Member.PDAddr)
	if members, _, err := pdCall(t, n.Member.PDAddr, "pdpb.PD/GetMembers", cfg, nil); err != nil || !strings.Contains(string(members), "https://localhost:"+port) {
		t.Errorf("members %q, %v; want https://localhost:%s", members, err, port)
	}
}

// What is no HTTP/2 is refused, and counts as a connection of clients all the same.
func TestPD_ConnectionsCount(t *testing.T) {
	n := testnode.Guarded(t, "", withPD(func(s *config.Settings) { s.MaxConnections = 3 })) // of which an address may have two
	first, second := rig.Dial(t, n.Member.PDAddr, nil), rig.Dial(t, n.Client, nil)
	open := func() float64 { return metric(t, n, `isotone_client_connections{protocol="pd"}`) }
	await.Until(t, "both are counted", func() bool { return open() == 1 && metric(t, n, `isotone_client_connections{protocol="silent"}`) == 1 })
	third := rig.Dial(t, n.Member.PDAddr, nil)
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("a third connection is served")
	}
	if got := metric(t, n, `isotone_client_connections_refused_total{protocol="pd"}`); got != 1 {
		t.Errorf("%v connections were refused, want 1", got)
	}
	_, _ = fmt.Fprint(first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got, err := io.ReadAll(first); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 505 ") {
		t.Errorf("%q, %v", got, err)
	}
	await.Until(t, "it is closed", func() bool { return open() == 0 })
	_ = second.Close()
}

// Stop waits for no call that waits for its client.
func TestPD_AnIdleCallEndsWhenTheNodeStops(t *testing.T) {
	n := testnode.Guarded(t, "", withPD(nil))
	r, w := io.Pipe()
	defer w.Close()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	request, err := http.NewRequestWithContext(rig.Soon(t), http.MethodPost, "http://"+n.Member.PDAddr+"/pdpb.PD/Tso", r)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	answer, err := tr.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	began := time.Now()
	if err := n.Member.Stop(slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the node took %v to stop, as long as for a request that never ends", took)
	}
	if _, err := io.ReadAll(answer.Body); err != nil || answer.Trailer.Get("Grpc-Status") != "14" {
		t.Errorf("status %s, %v", answer.Trailer.Get("Grpc-Status"), err)
	}
}
