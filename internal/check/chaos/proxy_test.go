//go:build linux

package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestProxy_SlowHandshakeIsNoOldCopy delays what one follower sends to the other by much more
// than the leader takes to tell one of the other's progress. The log index in a hello is then
// outdated when it arrives, but that must not count as an old copy of a data directory (I6).
func TestProxy_SlowHandshakeIsNoOldCopy(t *testing.T) {
	for name, link := range map[string]func(*chaos.Proxy) *chaos.Link{
		"hello of the node that dials": func(p *chaos.Proxy) *chaos.Link { return &p.Forth },
		"welcome of the other":         func(p *chaos.Proxy) *chaos.Link { return &p.Back },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := trial.Options()
			o.Proxies = true
			c := chaos.StartCluster(t, o)
			c.Settle()
			leader := c.WaitLeader()
			for _, p := range c.Proxies {
				if p.From == leader.ID || p.To == leader.ID {
					continue
				}
				link(p).Set(chaos.LinkFault{Delay: 700 * time.Millisecond})
				n := c.Node(p.To)
				connections := func() int { return strings.Count(n.Log(), `"msg":"peer connected"`) }
				before := connections()
				p.Cut()
				await.Done(t, chaos.ReadyTimeout, func() (bool, string) { return connections() > before, n.Log() })
			}
			c.Settle()
		})
	}
}

// TestProxy_EveryConnectionPassesItsProxy cuts connections again and again: nodes dial the address
// that is on record, not the one that they were started with, and it is that of a proxy too.
func TestProxy_EveryConnectionPassesItsProxy(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Proxies = true
	c := chaos.StartCluster(t, o)
	if len(c.Proxies) != 3 {
		t.Fatalf("%d proxies for three pairs", len(c.Proxies))
	}
	for range 3 {
		c.Settle()
		for _, p := range c.Proxies {
			deadline := time.Now().Add(trial.AnswerTimeout)
			for !p.IsUsed() {
				if time.Now().After(deadline) {
					t.Fatalf("no connection from node %d to node %d passes their proxy", p.From, p.To)
				}
				time.Sleep(10 * time.Millisecond)
			}
			p.Cut()
		}
	}
}

// TestProxy_DelaysHoldsDropsAndCuts sends bytes through a proxy to a server that sends
// them back.
func TestProxy_DelaysHoldsDropsAndCuts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	p, addr := chaos.NewProxy(t, listener.Addr().String())
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// echo measures how long a byte takes there and back.
	echo := func(most time.Duration) (time.Duration, error) {
		began := time.Now()
		_ = conn.SetDeadline(began.Add(most))
		if _, err := conn.Write([]byte("x")); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return time.Since(began), err
	}

	if _, err := echo(trial.AnswerTimeout); err != nil {
		t.Fatal(err)
	}
	p.Forth.Set(chaos.LinkFault{Delay: 30 * time.Millisecond})
	p.Back.Set(chaos.LinkFault{Delay: 30 * time.Millisecond})
	if took, err := echo(trial.AnswerTimeout); err != nil || took < 60*time.Millisecond {
		t.Errorf("delayed by 60 ms in all: %v, %v", took, err)
	}
	p.Forth.Set(chaos.LinkFault{})
	p.Back.Set(chaos.LinkFault{Hold: true})
	time.AfterFunc(50*time.Millisecond, func() { p.Back.Set(chaos.LinkFault{}) })
	if took, err := echo(trial.AnswerTimeout); err != nil || took < 50*time.Millisecond {
		t.Errorf("held for 50 ms: %v, %v", took, err)
	}
	p.Forth.Set(chaos.LinkFault{Drop: true})
	if _, err := echo(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("dropped: %v", err)
	}
	p.Forth.Set(chaos.LinkFault{})
	p.Cut()
	if _, err := echo(trial.AnswerTimeout); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("cut: %v", err)
	}
}

// TestProxy_OneWayFaultsHeal holds, then drops, what the leader sends to one follower. The
// follower recovers, and no node stops.
func TestProxy_OneWayFaultsHeal(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]chaos.LinkFault{"hold": {Hold: true}, "drop": {Drop: true}, "a trickle": {BytesPerSecond: 500}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := trial.Options()
			o.Proxies = true
			c := chaos.StartCluster(t, o)
			load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs()})
			c.Settle()
			p, link, noticed := disturb(t, c, f)
			for !noticed {
				link.Set(chaos.LinkFault{})
				p, link, noticed = disturb(t, c, f)
			}
			load.WaitAnswer(t)
			link.Set(chaos.LinkFault{})
			p.Cut()
			c.Settle()
			load.End(t, 200, 0)
		})
	}
}

// disturb disturbs what the leader sends to one follower until the fault has its effect. It is not noticed if another node leads
// before that, which may be elected because of the fault.
func disturb(t *testing.T, c *chaos.Cluster, f chaos.LinkFault) (p *chaos.Proxy, link *chaos.Link, noticed bool) {
	t.Helper()
	leader := c.WaitLeader()
	for _, other := range c.Proxies {
		if other.From == leader.ID || other.To == leader.ID {
			p = other
		}
	}
	link, follower := &p.Forth, c.Node(p.To)
	if p.To == leader.ID {
		link, follower = &p.Back, c.Node(p.From)
	}
	link.Set(f)
	if f.BytesPerSecond == 0 { // the peers give up a connection on which nothing comes for 5 s
		trial.WantMetric(t, follower, fmt.Sprintf("isotone_peer_connected{peer=\"%d\"}", leader.ID), 0)
		return p, link, true
	}
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		lag, err := chaos.Metric(leader.HTTPAddr, fmt.Sprintf("isotone_peer_lag_entries{peer=\"%d\"}", follower.ID))
		noticed = err == nil && lag > 5
		return noticed || c.Leader() != leader, fmt.Sprintf("node %d lags %v entries behind node %d, %v", follower.ID, lag, leader.ID, err)
	})
	return p, link, noticed
}
