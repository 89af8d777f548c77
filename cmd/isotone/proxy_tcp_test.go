package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/proxy"
)

func TestProxyTCP_UsageErrorsSayWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"--tcp", []string{"want either --backend or --node"}},
		{"--tcp --node x:1", []string{"--node has no --tcp", "use --backend"}},
		{"--tcp --backend http://x:1", []string{`backend "http://x:1": want host:port`}},
		{"--tcp --backend x", []string{`backend "x": want host:port`}},
		{"--tcp --backend x:1 --tls-cert a --tls-key b", []string{"--tls-cert does not go with --tcp: TLS passes through", "--tls-key does not"}},
		{"--tcp --backend x:1 --sticky-key header:a --max-body 1 --log-requests", []string{"--sticky-key goes with HTTP backends, not with --tcp", "--max-body goes", "--log-requests goes"}},
		{"--tcp --backend x:1 --trace-endpoint http://x --request-stats", []string{"--trace-endpoint goes with HTTP", "--request-stats goes with HTTP"}},
		{"--tcp --backend x:1 --mode lease", []string{"--mode goes with --node, not with --backend"}},
		{"--backend http://x --idle-timeout 5s --no-health-connect", []string{"--idle-timeout goes with --tcp", "--no-health-connect goes with --tcp"}},
		{"--node x:1 --drain-timeout 5s", []string{"--drain-timeout goes with --backend, not with --node"}},
		{"--tcp --backend x:1 --health-port 80", []string{"--health-port goes with --health-path"}},
		{"--tcp --backend x:1 --health-path /up --health-port 70000", []string{"--health-port 70000: want 1 to 65535"}},
		{"--tcp --backend x:1 --idle-timeout 1ms --dial-timeout 0s --drain-timeout -1s", []string{"--idle-timeout 1ms: want 1s or more", "--dial-timeout: want more than 0", "--drain-timeout -1s"}},
		{"--tcp --backend x:1 --max-backend-connections -1", []string{"--max-backend-connections -1: want 0 or more"}},
		{"--tcp --backend x:1 --proxy-protocol v3", []string{"--proxy-protocol", "v2"}},
	} {
		code, out, err := command(append([]string{"proxy"}, strings.Fields(tt.args)...)...)
		if code != exitUsage || out != "" {
			t.Errorf("%s: exit code %d, %s%s", tt.args, code, out, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(err, want) {
				t.Errorf("%s: %q is missing in: %s", tt.args, want, err)
			}
		}
	}
}

// TestProxyTCP_PassesTLSThrough to a backend beside one that is dead, and reports what it does.
func TestProxyTCP_PassesTLSThrough(t *testing.T) {
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "secret")
	}))
	defer backend.Close()
	live, dead := backend.Listener.Addr().String(), closedAddr(t)
	addr, admin := runProxy(t, "--tcp", "--backend", live, "--backend", dead+",3", "--strategy", "sticky", "--health-interval", "10ms")
	roots := backend.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, DisableKeepAlives: true}}
	resp, err := client.Get("https://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(body) != "secret" || !resp.TLS.PeerCertificates[0].Equal(backend.Certificate()) {
		t.Errorf("%q, %v", body, err)
	}
	await.Done(t, await.Timeout, func() (bool, string) {
		_, text := rig.Fetch(t, "http://"+admin+"/proxy/status")
		var st proxy.TCPStatus
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			t.Fatal(err)
		}
		return st.Connections == 0 && st.BytesUp > 0 && st.BytesDown > 0 && !st.Backends[0].Down && st.Backends[1].Down && st.Backends[1].URL == dead, text
	})
	await.Done(t, await.Timeout, func() (bool, string) {
		_, text := rig.Fetch(t, "http://"+admin+"/metrics")
		for _, want := range []string{
			`isotone_proxy_tcp_connections_total{outcome="no_backend"} 0`, `isotone_proxy_backend_up{backend="` + dead + `"} 0`,
			"isotone_proxy_tcp_connect_duration_seconds_count 1", "isotone_proxy_connections_limit ",
		} {
			if !strings.Contains(text, want) {
				return false, want + " is missing in " + text
			}
		}
		return true, ""
	})
	if status, body := rig.Fetch(t, "http://"+admin+"/ready"); status != http.StatusOK {
		t.Errorf("/ready: %d %s", status, body)
	}
}

// TestProxyTCP_DrainsWhenItIsToEnd: it is no longer ready and accepts nothing, while what is open
// goes on; then it ends.
func TestProxyTCP_DrainsWhenItIsToEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	var c proxyCmd
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(strings.Fields("--tcp --drain-timeout 1m --listen 127.0.0.1:0 --admin 127.0.0.1:0 --no-health-connect --backend " + l.Addr().String())); err != nil {
		t.Fatal(err)
	}
	log := &proxyLog{}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, console{io.Discard, log}) }()
	var line struct{ Listen, Admin string }
	await.Done(t, await.Timeout, func() (bool, string) {
		for text := range strings.Lines(log.String()) {
			if strings.Contains(text, `"msg":"forwarding"`) && strings.HasSuffix(text, "\n") {
				_ = json.Unmarshal([]byte(text), &line)
			}
		}
		return line.Listen != "", log.String()
	})
	conn := rig.Dial(t, line.Listen, nil)
	ping := func() {
		t.Helper()
		b := make([]byte, 4)
		_, _ = io.WriteString(conn, "ping")
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "ping" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	ping()
	began := time.Now()
	cancel(errors.New("terminated"))
	await.Done(t, await.Timeout, func() (bool, string) {
		status, body := rig.Fetch(t, "http://"+line.Admin+"/ready")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "stopping"), body
	})
	ping()
	_ = conn.Close()
	if err := <-ended; err != nil || time.Since(began) > 50*time.Second {
		t.Errorf("it ends after %v with %v", time.Since(began), err)
	}
	if _, err := net.Dial("tcp", line.Listen); err == nil {
		t.Error("it still accepts")
	}
	http.DefaultClient.CloseIdleConnections()
}
