package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/server"
)

// startAlone runs a cluster of one node, at a port of its own if that is "0", until it is
// closed or the test ends.
func startAlone(t *testing.T, port string) (m *server.Member, end func()) {
	t.Helper()
	return startAloneIn(t, port, t.TempDir())
}

// startAloneIn is startAlone in a data directory, which may have been used before.
func startAloneIn(t *testing.T, port, dir string) (m *server.Member, end func()) {
	t.Helper()
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.DataDir = "127.0.0.1", number, "127.0.0.1:0", dir
	s.AdvertiseAddr = ""
	everything := access.All // also floors
	s.Anonymous = &everything
	so, err := server.Listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	m, err = server.Start(&s, so, server.Options{Version: version, Loops: 1}, telemetry.NewLogger(io.Discard, telemetry.LogOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	open := true
	end = func() {
		if open {
			open = false
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(end)
	await.Done(t, await.Timeout, func() (bool, string) {
		now := m.Node.Status()
		return now.NotReady == "" && now.ClusterID != 0, fmt.Sprintf("not ready: %+v", now)
	})
	return m, end
}

func clusterOf(m *server.Member) isotone.ClusterID {
	return isotone.ClusterID(m.Node.Status().ClusterID)
}

// loopback is the client address of a member.
func loopback(t *testing.T, m *server.Member) string {
	t.Helper()
	_, port, err := net.SplitHostPort(m.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port
}

// wantTold checks that an address reports this cluster ID in every protocol, on the fast path
// and on the standard servers, with TLS and without.
func wantTold(t *testing.T, addr string, id isotone.ClusterID, h3 bool) {
	t.Helper()
	trust := &tls.Config{InsecureSkipVerify: true}
	one := &http.Transport{TLSClientConfig: trust.Clone(), Protocols: new(http.Protocols)}
	one.Protocols.SetHTTP1(true)
	two := &http.Transport{TLSClientConfig: trust.Clone(), Protocols: new(http.Protocols)}
	two.Protocols.SetHTTP2(true)
	defer one.CloseIdleConnections()
	defer two.CloseIdleConnections()
	over := map[string]http.RoundTripper{"http": one}
	if h3 {
		three := &http3.Transport{TLSClientConfig: trust.Clone()}
		defer three.Close()
		over["https, HTTP/1.1"], over["https, HTTP/2"], over["https, HTTP/3"] = one, two, three
	}
	for name, via := range over {
		scheme, _, _ := strings.Cut(name, ",")
		// The last one detaches an HTTP/1.1 connection from its loop.
		for _, path := range []string{"/timestamp", "/timestamp?format=json", "/api/snowflake", "/timestamp?n=0", "/members"} {
			resp, err := (&http.Client{Transport: via, Timeout: time.Minute}).Get(scheme + "://" + addr + path)
			if err != nil {
				t.Errorf("%s %s: %v", name, path, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if got := resp.Header.Get("Isotone-Cluster"); got != id.String() {
				t.Errorf("%s %s: %d %q tells %q, want %s", name, path, resp.StatusCode, body, got, id)
			}
			var told struct{ ClusterID string }
			if path == "/members" && (json.Unmarshal(body, &told) != nil || told.ClusterID != id.String()) {
				t.Errorf("%s /members: %s, want %s", name, body, id)
			}
		}
	}
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(nc, "INFO cluster\r\nCLUSTER INFO\r\nHELLO 3\r\nQUIT\r\n")
	if got, err := io.ReadAll(nc); err != nil || strings.Count(string(got), id.String()) != 3 {
		t.Errorf("over RESP: %q, %v; want %s three times", got, err, id)
	}
}

func TestCluster_IsToldByNodesAndProxies(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	m, _ := startAlone(t, "0")
	id := clusterOf(m)
	addr := loopback(t, m)
	wantTold(t, addr, id, true)
	c, err := client.NewWith(rig.Soon(t), client.Options{Addrs: []string{addr}, Cluster: id})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	await.Done(t, await.Timeout, func() (bool, string) {
		var state struct{ ClusterID string }
		_, body := rig.Fetch(t, "http://"+addr+"/state")
		return json.Unmarshal([]byte(body), &state) == nil && state.ClusterID == id.String(), "/state: " + body
	})
	for _, args := range [][]string{{"--node", addr}, {"--node", addr, "--cluster", id.String()}} {
		proxy, admin := runProxy(t, args...)
		await.Until(t, "the proxy is ready", func() bool {
			ready, _ := rig.Fetch(t, "http://"+proxy+"/ready")
			ids, _ := rig.Fetch(t, "http://"+proxy+"/api/snowflake")
			return ready == 200 && ids == 200
		})
		wantTold(t, proxy, id, false)
		if _, body := rig.Fetch(t, "http://"+admin+"/proxy/status"); !strings.Contains(body, `"clusterID":"`+id.String()+`"`) {
			t.Errorf("/proxy/status: %s", body)
		}
	}
}

// TestCluster_AProxyStandsForOneOnly: what is behind it is not what it was told.
func TestCluster_AProxyStandsForOneOnly(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	m, _ := startAlone(t, "0")
	other := clusterOf(m) ^ 1
	proxy, admin := runProxy(t, "--node", loopback(t, m), "--cluster", other.String())
	status, body := rig.Fetch(t, "http://"+proxy+"/timestamp") // after as long as the proxy waits for its cluster
	if status != http.StatusBadGateway || !strings.Contains(body, `"code":"wrong_cluster"`) || !strings.Contains(body, clusterOf(m).String()) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := rig.Fetch(t, "http://"+proxy+"/ready"); status != 503 || !strings.Contains(body, "wrong_cluster") {
		t.Errorf("/ready: %d %s", status, body)
	}
	for _, at := range []string{proxy, admin} {
		if status, body := rig.Fetch(t, "http://"+at+"/readyz"); status != 503 || !strings.Contains(body, "[-]timestamps failed: the cluster does not answer: wrong_cluster") || !strings.Contains(body, "[-]ids failed: ") {
			t.Errorf("/readyz: %d %s", status, body)
		}
	}
	for _, path := range []string{"/ready/timestamps", "/ready/ids"} {
		if status, body := rig.Fetch(t, "http://"+proxy+path); status != 503 || !strings.Contains(body, `"code":"no_leader"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := rig.Fetch(t, "http://"+proxy+"/api/snowflake"); status != 503 {
		t.Errorf("an id: %d %s", status, body)
	}
	if _, body := rig.Fetch(t, "http://"+admin+"/metrics"); !strings.Contains(body, "isotone_proxy_cluster_rejected_total{code=\"wrong_cluster\"}") ||
		strings.Contains(body, "isotone_proxy_cluster_rejected_total{code=\"wrong_cluster\"} 0") {
		t.Error("/metrics does not tell of it")
	}
	for _, id := range []string{"abc", "0000000000000000", "x"} {
		if _, err := (&proxyCmd{Node: []string{"127.0.0.1:1"}, proxyNodes: proxyNodes{Cluster: id}}).gateway(nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--cluster") {
			t.Errorf("--cluster %s: %v", id, err)
		}
	}
}

// TestCluster_AClientDoesNotFollowAnAddress that another cluster has by now (I10).
func TestCluster_AClientDoesNotFollowAnAddress(t *testing.T) {
	t.Parallel()
	first, end := startAlone(t, "0")
	addr := loopback(t, first)
	c, err := client.New(rig.Soon(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Timestamp(rig.Soon(t)); err != nil || c.Cluster() != clusterOf(first) {
		t.Fatalf("%v; of %v, want %v", err, c.Cluster(), clusterOf(first))
	}
	end()
	_, port, _ := net.SplitHostPort(addr)
	second, _ := startAlone(t, port)
	for name, call := range map[string]func(context.Context) error{
		"one":   func(ctx context.Context) error { _, err := c.Timestamp(ctx); return err },
		"batch": func(ctx context.Context) error { _, err := c.Timestamps(ctx, 2); return err },
		"id":    func(ctx context.Context) error { _, err := c.Snowflake(ctx); return err },
		"worker": func(ctx context.Context) error {
			_, err := c.NewGenerator(ctx, client.GeneratorOptions{})
			return err
		},
	} {
		t.Log(name)
		await.Expired(t, call, func(err error) bool {
			return errors.Is(err, isotone.ErrWrongCluster) && strings.Contains(err.Error(), clusterOf(second).String())
		})
	}
	fresh, err := client.New(rig.Soon(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if _, err := fresh.Timestamp(rig.Soon(t)); err != nil {
		t.Errorf("a new client: %v", err)
	}
}
