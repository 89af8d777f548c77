package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/server"
)

// process is one node in this process, which does what isotone serve does.
type process struct {
	t   *testing.T
	s   config.Settings
	dns server.LookupSRV // with s.PeersSRV
	log syncBuffer

	cancel func()
	done   chan struct{}  // closed when it has ended
	err    error          // set then
	m      *server.Member // set when started is closed
	began  chan struct{}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newProcess sets up a node with addresses and a directory of its own.
func newProcess(t *testing.T, id uint64) *process {
	t.Helper()
	s := config.Default()
	addrs := freeAddrs(t, 2)
	s.NodeID, s.HTTPHost, s.HTTPPort, s.ThriftPort = id, "127.0.0.1", portOf(t, addrs[0]), 0
	s.AdvertiseAddr, s.RaftAddr = addrs[0], addrs[1]
	s.DataDir = filepath.Join(t.TempDir(), "data")
	p := &process{t: t, s: s}
	t.Cleanup(func() { p.stop() })
	return p
}

func portOf(t *testing.T, addr string) (port int) {
	t.Helper()
	if _, err := fmt.Sscanf(addr[strings.LastIndexByte(addr, ':'):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// start runs the node. It may have to wait until it is let in.
func (p *process) start() {
	p.t.Helper()
	var so server.Sockets
	await.Until(p.t, "its ports are free", func() bool { // somebody may look whether they are
		var err error
		if so, err = server.Listen(&p.s); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			p.t.Fatal(err)
		}
		return err == nil
	})
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel, p.done, p.began, p.m = func() { cancel(errors.New("terminated")) }, make(chan struct{}), make(chan struct{}), nil
	began := p.began
	go func() {
		defer close(p.done)
		s := p.s
		p.err = server.Serve(ctx, &s, so, server.Process{
			Options: server.Options{Version: version, Loops: 1}, Lookup: p.dns,
			Started: func(m *server.Member) {
				p.m = m
				close(began)
			},
		}, telemetry.NewLogger(&p.log, telemetry.LogOptions{}))
	}()
}

// stop ends the node as SIGTERM does, and returns its error.
func (p *process) stop() error {
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	return p.ended()
}

// stopWaiting ends a node that waits for its cluster, and checks that it never served.
func (p *process) stopWaiting() {
	p.t.Helper()
	select {
	case <-p.began:
		p.t.Errorf("node %d serves", p.s.NodeID)
	default:
	}
	if err := p.stop(); err != nil {
		p.t.Errorf("node %d, stopped while it waits: %v", p.s.NodeID, err)
	}
}

// ended waits until the node has ended, and returns its error.
func (p *process) ended() error {
	p.t.Helper()
	select {
	case <-p.done:
		p.cancel()
		return p.err
	case <-time.After(rig.Wait):
		p.t.Fatalf("node %d goes on: %s", p.s.NodeID, p.log.String())
		return nil
	}
}

// ready waits until the node answers timestamps, and IDs if it makes any: it leases its workers just after becoming ready.
func (p *process) ready() {
	p.t.Helper()
	select {
	case <-p.began:
	case <-p.done:
		p.t.Fatalf("node %d has ended: %v", p.s.NodeID, p.err)
	case <-time.After(rig.Wait):
		p.t.Fatalf("node %d waits: %s", p.s.NodeID, p.log.String())
	}
	p.says("/ready", 200, "")
	if p.s.SnowflakeLease > 0 {
		p.says("/ready/ids", 200, "")
	}
}

// says waits for an answer of the node.
func (p *process) says(path string, status int, words string) {
	p.t.Helper()
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	await.Done(p.t, await.Timeout, func() (bool, string) {
		resp, err := c.Get("http://" + p.s.AdvertiseAddr + path)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == status && strings.Contains(string(body), words),
			fmt.Sprintf("node %d, %s: %d %s, want %d and %q", p.s.NodeID, path, resp.StatusCode, body, status, words)
	})
}

// processes are the nodes of a cluster.
type processes []*process

// startProcesses runs a cluster of n founders.
func startProcesses(t *testing.T, n int) (all processes) {
	t.Helper()
	return startProcessesWith(t, n, func(*config.Settings) {})
}

// startProcessesWith does so with other settings.
func startProcessesWith(t *testing.T, n int, change func(*config.Settings)) (all processes) {
	t.Helper()
	peers := map[uint64]string{}
	for i := range n {
		p := newProcess(t, uint64(i+1))
		peers[p.s.NodeID] = p.s.RaftAddr
		change(&p.s)
		all = append(all, p)
	}
	for _, p := range all {
		p.s.Peers = peers
		p.start()
	}
	for _, p := range all {
		p.ready()
	}
	return all
}

func (all processes) addrs() (list []string) {
	for _, p := range all {
		list = append(list, p.s.AdvertiseAddr)
	}
	return list
}

// operate runs a command at these nodes.
func (all processes) operate(args string) (code int, out, err string) {
	return command(append(strings.Fields(args), "--yes", "--endpoint", strings.Join(all.addrs(), ","))...)
}

// does runs a command, which must succeed.
func (all processes) does(t *testing.T, args, words string) {
	t.Helper()
	if code, out, err := all.operate(args); code != 0 || !strings.Contains(out, words) {
		t.Fatalf("isotone %s: exit code %d, %s%s; want %q", args, code, out, err, words)
	}
}

// refuses runs a command, which must fail with exit code 1 and some words.
func (all processes) refuses(t *testing.T, args string, words ...string) {
	t.Helper()
	code, out, err := all.operate(args)
	for _, word := range words {
		if code != 1 || out != "" || !strings.Contains(err, word) {
			t.Errorf("isotone %s: exit code %d, %s%s; want %q", args, code, out, err, word)
		}
	}
}

// list returns the members as the leader sees them.
func (all processes) list(t *testing.T) (l front.MemberList) {
	t.Helper()
	code, out, err := all.operate("member list --json")
	if e := json.Unmarshal([]byte(out), &l); code != 0 || e != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, e, out, err)
	}
	return l
}

// leader returns the leader and the others.
func (all processes) leader(t *testing.T) (leader *process, others processes) {
	t.Helper()
	id := all.list(t).Leader
	for _, p := range all {
		if p.s.NodeID == id {
			leader = p
		} else {
			others = append(others, p)
		}
	}
	return leader, others
}

// roles waits until the members have these roles, as in "1 voter, 2 leader"; any leader counts
// as a voter.
func (all processes) roles(t *testing.T, want string) {
	t.Helper()
	await.Done(t, await.Timeout, func() (bool, string) {
		var got []string
		for _, m := range all.list(t).Members {
			got = append(got, fmt.Sprintf("%d %s", m.NodeID, strings.Replace(m.Role, "leader", "voter", 1)))
		}
		return strings.Join(got, ", ") == want, fmt.Sprintf("%q, want %q", got, want)
	})
}

// joiner sets up a node that joins a cluster.
func (all processes) joiner(t *testing.T, id uint64) *process {
	t.Helper()
	p := newProcess(t, id)
	p.s.Join = all.addrs()
	return p
}
