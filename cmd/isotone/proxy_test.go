package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/server"
)

func TestProxy_UsageErrorsSayWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"", []string{"--backend", "--node"}},
		{"--backend http://x --node x:1", []string{"--backend", "--node"}},
		{"--backend x", []string{"http://host:port"}},
		{"--backend http://x,0", []string{"--backend", "weight"}},
		{"--backend http://x --strategy best --health-path up --answer-timeout 0s --tls-cert a", []string{"--strategy", "--health-path", "--answer-timeout", "--tls-key"}},
		{"--backend http://x --strategy sticky", []string{": --strategy sticky needs --sticky-key header:NAME or query:NAME\n"}},
		{"--backend http://x --sticky-key header:a", []string{": --sticky-key goes with --strategy sticky\n"}},
		{"--backend http://x --strategy sticky --sticky-key cookie:a", []string{"--sticky-key", "header:NAME"}},
		{"--node nonsense", []string{"--node", "nonsense"}},
		{"--backend http://x --request-stats --request-stats-sample 0", []string{"--request-stats-sample"}},
		{"--node x:1 --mode fast", []string{"--mode", "quorum"}},
		{"--backend http://x --mode lease --advertise x:1 --no-ids", []string{"--mode goes with --node", "--advertise goes with --node", "--no-ids goes with --node, not with --backend"}},
		{"--node x:1 --advertise 0.0.0.0:8090", []string{`--advertise "0.0.0.0:8090"`, "10.0.0.1"}},
		{"--node x:1 --advertise [::]:8090", []string{`--advertise "[::]:8090"`, "--listen"}},
		{"--node x:1 --strategy least-busy --health-interval 2s", []string{"--strategy goes with --backend", "--health-interval goes with --backend"}},
		{"--node x:1 --log-requests --answer-timeout=1s", []string{"--log-requests goes with --backend", "--answer-timeout goes with --backend"}},
		{"--backend http://x --listen 42400 --admin :x", []string{`--listen "42400": want HOST:PORT or :PORT`, `--admin ":x": want`}},
		{"--node x:1 --tls-cert /does/not/exist --tls-key /does/not/exist", []string{"--tls-cert", "/does/not/exist"}},
		{"--backend http://x --retries -1", []string{": --retries -1: want 0 or more\n"}},
		{"--backend http://x --max-body 0 --retry-percent -5", []string{"--max-body 0: want 1 or more", "--retry-percent -5: want 0 or more"}},
		{"--backend http://x --request-stats-sample 10", []string{"--request-stats-sample goes with --request-stats"}},
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

// proxyLog is where a proxy in the test logs to.
type proxyLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *proxyLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *proxyLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// runProxy runs a proxy until the test ends, and returns its addresses.
func runProxy(t *testing.T, args ...string) (addr, admin string) {
	t.Helper()
	return runProxyLogging(t, &proxyLog{}, args...)
}

func runProxyLogging(t *testing.T, log *proxyLog, args ...string) (addr, admin string) {
	t.Helper()
	var c proxyCmd
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append(args, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, console{io.Discard, log}) }()
	t.Cleanup(func() {
		cancel(errors.New("interrupt"))
		if err := <-ended; err != nil {
			t.Errorf("the proxy ends with %v", err)
		}
		if !strings.Contains(log.String(), `"msg":"stopped"`) {
			t.Errorf("the log does not end well:\n%s", log)
		}
	})
	var line struct{ Listen, Admin string }
	await.Done(t, await.Timeout, func() (bool, string) {
		for text := range strings.Lines(log.String()) {
			if strings.Contains(text, "forwarding") && strings.HasSuffix(text, "\n") {
				_ = json.Unmarshal([]byte(text), &line)
			}
		}
		return line.Listen != "", "it does not start:\n" + log.String()
	})
	return line.Listen, line.Admin
}

// TestProxy_ALogThatHangsDelaysNothing, and says later what it lacks.
func TestProxy_ALogThatHangsDelaysNothing(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()
	log := &proxyLog{}
	addr, admin := runProxyLogging(t, log, "--backend", backend.URL, "--log-requests")
	log.mu.Lock() // from here on it hangs
	unlock := sync.OnceFunc(log.mu.Unlock)
	defer unlock()
	requests, dropped := 0, 0
	for dropped == 0 && requests < 100_000 && !t.Failed() {
		requests += pipeline(t, addr)
		_, metrics := rig.Fetch(t, "http://"+admin+"/metrics")
		_, text, _ := strings.Cut(metrics, "\nisotone_log_lines_dropped_total ")
		if _, err := fmt.Sscan(text, &dropped); err != nil {
			t.Fatal(err)
		}
	}
	unlock()
	if dropped == 0 {
		t.Fatalf("no line of %d was dropped; want what there was no room for", requests)
	}
	await.Done(t, await.Timeout, func() (bool, string) {
		_, told, _ := strings.Cut(log.String(), `"msg":"lines of this log were dropped: what it is written to is too slow","lines":`)
		written := strings.Count(log.String(), `"msg":"request"`)
		var lost int
		_, err := fmt.Sscanf(told, "%d}", &lost)
		return err == nil && lost == dropped && lost+written == requests,
			fmt.Sprintf("%d lines are written and %d lost of %d; it was %v that were dropped", written, lost, requests, dropped)
	})
}

// pipeline sends requests on several connections at a time, and returns how many were answered.
func pipeline(t *testing.T, addr string) (answered int) {
	const connections, each = 10, 100
	var work sync.WaitGroup
	for range connections {
		work.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", each)); err != nil {
				t.Error(err)
			}
			in := bufio.NewReader(c)
			for range each {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		})
	}
	work.Wait()
	return connections * each
}

// TestProxy_LogsWhatLibrariesSay in its own log, which nobody waits for.
func TestProxy_LogsWhatLibrariesSay(t *testing.T) {
	log := &proxyLog{}
	runProxyLogging(t, log, "--backend", "http://127.0.0.1:1", "--debug")
	stdlog.Print("as net/http has it")
	await.Done(t, await.Timeout, func() (bool, string) {
		return strings.Contains(log.String(), `"level":"DEBUG","msg":"as net/http has it"`), "the log lacks it:\n" + log.String()
	})
}

func TestProxy_ForwardsToBackendsAndTellsOfIt(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "this is ", r.URL.Path) }))
	defer backend.Close()
	addr, admin := runProxy(t, "--backend", backend.URL+",3", "--health-path", "/up", "--request-stats", "--max-connections", "77")
	if status, body := rig.Fetch(t, "http://"+addr+"/metrics"); status != 200 || body != "this is /metrics" {
		t.Errorf("%d %q", status, body)
	}
	rig.CheckProfiles(t, "http://"+admin)
	if status, _ := rig.Fetch(t, "http://"+admin+"/ready"); status != 200 {
		t.Errorf("/ready: %d", status)
	}
	if status, body := rig.Fetch(t, "http://"+admin+"/readyz?verbose"); status != 200 || body != "[+]backends ok\nreadyz check passed\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	_, body := rig.Fetch(t, "http://"+admin+"/proxy/status")
	var status struct {
		Backends []struct {
			URL      string
			Requests int
		}
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil || len(status.Backends) != 1 || status.Backends[0].URL != backend.URL || status.Backends[0].Requests != 1 {
		t.Errorf("%s: %v", body, err)
	}
	var missing []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_, body = rig.Fetch(t, "http://"+admin+"/metrics")
		missing = nil
		for _, want := range []string{
			`isotone_proxy_requests_total{status="2xx"} 1`, `isotone_proxy_backend_requests_total{backend="` + backend.URL + `"} 1`,
			"isotone_request_wall_seconds_count 1", "isotone_proxy_request_duration_seconds_count 1", `isotone_proxy_backend_up{backend="` + backend.URL + `"} 1`,
			"isotone_proxy_connections_limit 77",
		} {
			if !strings.Contains(body, want) {
				missing = append(missing, want)
			}
		}
		if len(missing) == 0 { // the request is counted just after its answer
			return
		}
	}
	t.Errorf("/metrics has no %q", missing)
}

func TestProxy_ServesTimestampsOfACluster(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", t.TempDir()
	so, err := server.Listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	node := so.HTTP.Addr().String()
	m, err := server.Start(&s, so, server.Options{Version: version, Loops: 1}, telemetry.NewLogger(io.Discard, telemetry.LogOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	addr, admin := runProxy(t, "--node", node, "--advertise", "proxy.example:1", "--request-stats")
	var last string
	for range 2 {
		await.Done(t, await.Timeout, func() (bool, string) {
			status, body := rig.Fetch(t, "http://"+addr+"/timestamp")
			if status == 200 && (len(body) != 16 || body <= last) {
				t.Fatalf("%q after %q", body, last)
			} else if status == 200 {
				last = body
			}
			return status == 200, fmt.Sprintf("%d %q", status, body)
		})
	}
	await.Done(t, await.Timeout, func() (bool, string) {
		status, body := rig.Fetch(t, "http://"+addr+"/api/snowflake")
		return status == 200 && len(body) > 10, fmt.Sprintf("no IDs: %d %q", status, body)
	})
	if _, body := rig.Fetch(t, "http://"+addr+"/members"); !strings.Contains(body, `"leader":{"nodeID":1,"addr":"proxy.example:1"}`) {
		t.Errorf("/members: %s", body)
	}
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, "*2\r\n$2\r\nTS\r\n$1\r\n3\r\n")
	answer := make([]byte, len("$16\r\n")+16+len("\r\n"))
	if _, err := io.ReadFull(nc, answer); err != nil || !strings.HasPrefix(string(answer), "$16\r\n") || string(answer[5:21]) <= last {
		t.Errorf("%q, %v", answer, err)
	}
	if status, body := rig.Fetch(t, "http://"+admin+"/debug/pprof/goroutine?debug=1"); status != 200 || !strings.Contains(body, "goroutine profile:") {
		t.Errorf("/debug/pprof/: %d %.80q", status, body)
	}
	other, err := http.NewRequest(http.MethodGet, "http://"+admin+"/debug/pprof/heap", nil)
	if err != nil {
		t.Fatal(err)
	}
	other.Host = "proxy.example.com"
	if answer, err := http.DefaultClient.Do(other); err != nil || answer.StatusCode != http.StatusForbidden {
		t.Errorf("/debug/pprof/ for another host: %v, %v", answer, err)
	} else {
		_ = answer.Body.Close()
	}
	if status, _ := rig.Fetch(t, "http://"+addr+"/debug/pprof/"); status == 200 {
		t.Error("the client port serves profiles")
	}
	if status, _ := rig.Fetch(t, "http://"+admin+"/ready"); status != 200 {
		t.Errorf("/ready: %d", status)
	}
	for _, at := range []string{addr, admin} {
		const all = "[+]timestamps ok\n[+]ids ok\nreadyz check passed\n"
		if status, body := rig.Fetch(t, "http://"+at+"/readyz?verbose"); status != 200 || body != all {
			t.Errorf("/readyz: %d %q", status, body)
		}
		if status, body := rig.Fetch(t, "http://"+at+"/livez"); status != 200 || body != "ok" {
			t.Errorf("/livez: %d %q", status, body)
		}
	}
	for _, path := range []string{"/ready/timestamps", "/ready/ids"} {
		if status, body := rig.Fetch(t, "http://"+addr+path); status != 200 || body != "ok" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, _ := rig.Fetch(t, "http://"+addr+"/admin/drain"); status != 401 && status != 404 {
		t.Errorf("/admin/drain: %d; a proxy is not drained", status)
	}
	if _, body := rig.Fetch(t, "http://"+admin+"/metrics"); !strings.Contains(body, `isotone_proxy_oracle_requests_total{code="ok",protocol="http1"} `) || !strings.Contains(body, "isotone_proxy_cluster_requests_total") || strings.Contains(body, "isotone_request_wall_seconds_count 0") {
		t.Error("/metrics does not tell of it")
	}
}

func TestProxy_NodesOverEachHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := credential.Open(credential.Config{CertFile: cert, KeyFile: key, SelfSigned: true}); err != nil {
		t.Fatal(err)
	}
	// There is no cluster: whatever the protocol, the proxy says so.
	addr, _ := runProxy(t, "--node", "127.0.0.1:1", "--tls-cert", cert, "--tls-key", key)
	trust := &tls.Config{InsecureSkipVerify: true}
	h3 := &http3.Transport{TLSClientConfig: trust.Clone()}
	t.Cleanup(func() { _ = h3.Close() })
	h2 := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
	t.Cleanup(h2.CloseIdleConnections)
	var clear http.Protocols
	clear.SetUnencryptedHTTP2(true)
	h2c := &http.Transport{Protocols: &clear}
	t.Cleanup(h2c.CloseIdleConnections)
	for name, c := range map[string]struct {
		via   http.RoundTripper
		url   string
		major int
	}{"h3": {h3, "https://", 3}, "h2": {h2, "https://", 2}, "h2c": {h2c, "http://", 2}} {
		resp, err := (&http.Client{Transport: c.via, Timeout: time.Minute}).Get(c.url + addr + "/ready")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = resp.Body.Close()
		if resp.ProtoMajor != c.major || resp.StatusCode != 503 {
			t.Errorf("%s: %s %d", name, resp.Proto, resp.StatusCode)
		}
	}
	// The others are in the loop, over TLS, too.
	for request, want := range map[string]string{
		"PING\r\n": "+PONG\r\n",
		"GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n": "HTTP/1.1 50",
	} {
		nc, err := tls.Dial("tcp", addr, trust)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(nc, request)
		answer := make([]byte, len(want))
		if _, err := io.ReadFull(nc, answer); err != nil || string(answer) != want {
			t.Errorf("%q: %q, %v", request, answer, err)
		}
		_ = nc.Close()
	}
}

// TestProxy_FollowsTheFilesOfItsCertificate, as nodes do.
func TestProxy_FollowsTheFilesOfItsCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{{"cert", "ca", "--dir", dir}, {"cert", "node", "1", "127.0.0.1", "--dir", dir}} {
		if code, _, err := command(args...); code != 0 {
			t.Fatal(err)
		}
	}
	cert, key := filepath.Join(dir, "node1.pem"), filepath.Join(dir, "node1-key.pem")
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()
	addr, _ := runProxy(t, "--backend", backend.URL, "--tls-cert", cert, "--tls-key", key)
	shown := func() string {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	was := shown()
	if code, _, err := command("cert", "node", "1", "127.0.0.1", "--dir", dir, "--overwrite"); code != 0 {
		t.Fatal(err)
	}
	await.Until(t, "it shows the new certificate", func() bool { return shown() != was })
}
