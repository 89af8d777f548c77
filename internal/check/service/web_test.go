//go:build linux

package service_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestWeb_EveryHTTPOnOnePort speaks all versions of HTTP to the leader's one port.
func TestWeb_EveryHTTPOnOnePort(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	n := c.WaitLeader()
	trustAll := &tls.Config{InsecureSkipVerify: true} // the certificate is self-signed
	h3 := &http3.Transport{TLSClientConfig: trustAll}
	defer h3.Close()
	for _, test := range []struct {
		url, proto string
		transport  http.RoundTripper
	}{
		{"http://" + n.HTTPAddr, "HTTP/1.1", transport(nil, (*http.Protocols).SetHTTP1)},
		{"http://" + n.HTTPAddr, "HTTP/2.0", transport(nil, (*http.Protocols).SetUnencryptedHTTP2)},
		{"https://" + n.HTTPAddr, "HTTP/1.1", transport(trustAll, (*http.Protocols).SetHTTP1)},
		{"https://" + n.HTTPAddr, "HTTP/2.0", transport(trustAll, (*http.Protocols).SetHTTP2)},
		{"https://" + n.HTTPAddr, "HTTP/3.0", h3},
	} {
		client := &http.Client{Transport: test.transport, Timeout: trial.AnswerTimeout}
		r, err := client.Get(test.url + "/timestamp?n=2")
		if err != nil {
			t.Errorf("%s to %s: %v", test.proto, test.url, err)
			continue
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		answer := chaos.Answer{Status: r.StatusCode, Body: body}
		stamps, rangeErr := answer.Range()
		if err != nil || r.StatusCode != 200 || r.Proto != test.proto || rangeErr != nil || stamps.Count != 2 {
			t.Errorf("%s to %s: %s %d, %d bytes, %v, %v", test.proto, test.url, r.Proto, r.StatusCode, len(body), err, rangeErr)
		}
		client.CloseIdleConnections()
	}
}

// transport speaks one version of HTTP.
func transport(config *tls.Config, set func(*http.Protocols, bool)) *http.Transport {
	p := new(http.Protocols)
	set(p, true)
	return &http.Transport{TLSClientConfig: config.Clone(), Protocols: p} // which it changes
}

// TestWeb_PagesSayWhatOperatorsRead checks every page of every node.
func TestWeb_PagesSayWhatOperatorsRead(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	leader := c.WaitLeader()
	for _, n := range c.Nodes {
		for _, page := range []string{"/up", "/ready"} {
			if a := trial.Get(t, n, page); a.Status != 200 || string(a.Body) != "ok" {
				t.Errorf("%s of node %d: %d %s", page, n.ID, a.Status, a.Body)
			}
		}
		wantMembers(t, c, n, leader)
		wantFiles(t, n)
		wantMetrics(t, n, leader)
		if n != leader {
			a := trial.Get(t, n, "/timestamp?n=2")
			if a.Status != 409 || a.Code() != "not_leader" || a.Header.Get("Isotone-Leader") != leader.HTTPAddr ||
				a.Header.Get("Location") != "http://"+leader.HTTPAddr+"/timestamp?n=2" {
				t.Errorf("a follower answers %d %v %s", a.Status, a.Header, a.Body)
			}
		}
	}
	for target, status := range map[string]int{"/members/": 404, "/timestamps": 404, "/timestamp/": 404} {
		if a := trial.Get(t, leader, target); a.Status != status || a.Code() != "not_found" {
			t.Errorf("%s: %d %s", target, a.Status, a.Body)
		}
	}
	c.Kill()
	n := c.Node(1)
	n.Start() // alone it is up, and not ready
	wantNotReady(t, n)
}

func wantMembers(t *testing.T, c *chaos.Cluster, n, leader *chaos.Node) {
	t.Helper()
	if a, b := trial.Get(t, n, "/members"), trial.Get(t, n, "/membership"); string(a.Body) != string(b.Body) {
		t.Errorf("/members %s, /membership %s", a.Body, b.Body)
	}
	m, err := chaos.Members(n.HTTPAddr, trial.AnswerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	role := "follower"
	if n == leader {
		role = "leader"
	}
	if m.Leader == nil || m.Leader.NodeID != leader.ID || m.Leader.Addr != leader.HTTPAddr ||
		m.NodeID != n.ID || m.Role != role || m.Term == 0 || len(m.Members) != len(c.Nodes) {
		t.Fatalf("node %d: %+v", n.ID, m)
	}
	for i, member := range m.Members {
		want := c.Nodes[i]
		if member.NodeID != want.ID || member.Addr != want.HTTPAddr || member.PeerAddr != want.RaftAddr || member.Learner {
			t.Errorf("node %d lists %+v", n.ID, member)
		}
	}
}

// wantFiles checks the permissions of the files that the node has written.
func wantFiles(t *testing.T, n *chaos.Node) {
	t.Helper()
	for _, name := range []string{"cert.pem", "key.pem", "isotone.db"} {
		info, err := os.Stat(filepath.Join(n.Dir, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	if info, err := os.Stat(n.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", info.Mode(), err)
	}
}

func wantMetrics(t *testing.T, n, leader *chaos.Node) {
	t.Helper()
	leads := 0.0
	if n == leader {
		leads = 1
		trial.Timestamps(t, n, 5)
	}
	for name, want := range map[string]float64{
		"isotone_leader": leads, "isotone_leader_id": float64(leader.ID), "isotone_ready": 1,
		"isotone_queue_limit": 10000, "isotone_storage_failed": 0, "isotone_timestamps_total": 5 * leads,
		`isotone_requests_total{code="ok",protocol="h3"}`: 0,
	} {
		trial.WantMetric(t, n, name, want)
	}
	a := trial.Get(t, n, "/metrics")
	if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("/metrics: %d %v", a.Status, a.Header)
	}
	trial.WantWords(t, string(a.Body), "isotone_term ", "isotone_ceiling_lead_seconds ", "isotone_storage_write_seconds_count ",
		"isotone_peer_refusals_total ", "isotone_build_info{", "go_goroutines ", "process_resident_memory_bytes ")
}

// wantNotReady expects a node without a quorum to report that, and to refuse timestamps.
func wantNotReady(t *testing.T, n *chaos.Node) {
	t.Helper()
	a, err := chaos.Get(n.HTTPAddr, "/up", trial.AnswerTimeout)
	for deadline := time.Now().Add(chaos.ReadyTimeout); err != nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a, err = chaos.Get(n.HTTPAddr, "/up", trial.AnswerTimeout)
	}
	if err != nil || a.Status != 200 {
		t.Fatalf("/up: %v, %v", a, err)
	}
	if a := trial.Get(t, n, "/ready"); a.Status != 503 || a.Code() != "no_leader" || !strings.Contains(string(a.Body), "1 of 3 members are connected") {
		t.Errorf("/ready: %d %s", a.Status, a.Body)
	}
	if a := trial.Get(t, n, "/timestamp"); a.Status != 503 || a.Code() != "no_leader" {
		t.Errorf("/timestamp: %d %s", a.Status, a.Body)
	}
	if m, err := chaos.Members(n.HTTPAddr, trial.AnswerTimeout); err != nil || m.Leader != nil || len(m.Members) != 3 {
		t.Errorf("/members: %+v, %v", m, err)
	}
}
