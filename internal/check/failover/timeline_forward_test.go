//go:build linux

package failover_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// forwarded is a cluster with three owners of timelines, whose clients know one node with FORWARD=1, and a proxy, and follow no redirect.
type forwarded struct {
	*chaos.Cluster
	t     *testing.T
	entry *chaos.Node // it lives
	proxy string
}

var forwardedNames = []string{"one", "two", "three"}

func startForwarded(t *testing.T) forwarded {
	t.Helper()
	o := trial.Options()
	o.Env = map[string]string{"FORWARD": "1", "LOOPS": "2", "TIMELINES": "1"}
	c := forwarded{Cluster: chaos.StartCluster(t, o), t: t}
	c.WaitReady()
	for _, name := range forwardedNames {
		operate(t, c.Cluster, "group", "create", "of-"+name)
		operate(t, c.Cluster, "timeline", "create", name, "--group", "of-"+name)
	}
	c.entry, c.proxy = c.Others(c.WaitLeader())[0], trial.StartProxy(t, c.Cluster)
	c.spread()
	return c
}

// spread gives each node a timeline.
func (c forwarded) spread() {
	c.t.Helper()
	c.Settle()
	for i, name := range forwardedNames {
		c.move(name, c.Nodes[i])
	}
}

func (c forwarded) move(name string, to *chaos.Node) {
	c.t.Helper()
	operate(c.t, c.Cluster, "group", "move", "of-"+name, fmt.Sprint(to.ID))
}

// over returns what the Redis protocol answers.
func over(addr, command string) (string, error) {
	nc, err := net.DialTimeout("tcp", addr, trial.AnswerTimeout)
	if err != nil {
		return "", err
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(trial.AnswerTimeout))
	if _, err := io.WriteString(nc, command+"\r\nQUIT\r\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(nc)
	return string(b), err
}

// TestForward_TimelinesOfAllOwnersAreServedByOneNode, and by a proxy, while their groups move and nodes end: no request fails. Clients of both
// ways see one order.
func TestForward_TimelinesOfAllOwnersAreServedByOneNode(t *testing.T) {
	t.Parallel()
	c := startForwarded(t)
	var loads []*chaos.Load
	for _, name := range append([]string{""}, forwardedNames...) {
		query := ""
		if name != "" {
			query = "&timeline=" + name
		}
		loads = append(loads, chaos.StartLoad(t, chaos.LoadOptions{
			Addrs: []string{c.entry.HTTPAddr, c.proxy}, Queries: []string{query}, Callers: 4, NoIDs: true, Timeout: 10 * time.Second,
		}))
	}
	client := trial.StartClientLoadWithin(t, []string{c.proxy}, 2, trial.CallDeadline())
	lines := []*trial.ClientLoad{client}
	for _, name := range forwardedNames {
		lines = append(lines, client.StartTimeline(t, name, 2))
	}
	more := func() {
		t.Helper()
		for _, l := range loads {
			l.WaitAnswer(t, c.proxy)
			l.WaitAnswer(t, c.entry.HTTPAddr)
		}
		for _, l := range lines {
			l.More(t, 20)
		}
	}
	for range trial.Short(2, 1) {
		more()
		leader := c.WaitLeader()
		var owner *chaos.Node
		for _, n := range c.Others(c.entry) {
			if n != leader {
				owner = n
			}
		}
		for _, name := range forwardedNames { // to the entry, the owner, and the leader
			for _, to := range []*chaos.Node{c.entry, leader, owner} {
				c.move(name, to)
				more()
			}
		}
		owner.Kill()
		more()
		owner.Start()
		c.spread()
		more()
		owner.Stop()
		more()
		owner.Cont()
		more()
		c.spread()
		if leader = c.WaitLeader(); leader != c.entry {
			leader.Kill()
			more()
			leader.Start()
			c.spread()
		}
	}
	more()
	for _, l := range lines {
		defer l.Verify(t)
	}
	for i, l := range loads {
		for outcome, count := range l.End(t, 50, 0).Outcomes {
			if outcome != "ok" {
				t.Errorf("load %d: %d requests ended as %s", i, count, outcome)
			}
		}
	}
}

// TestForward_EachProtocolAsksTheOwner, and says that there is no such timeline once it is deleted.
func TestForward_EachProtocolAsksTheOwner(t *testing.T) {
	t.Parallel()
	c := startForwarded(t)
	http2 := overHTTP2(t)
	say := func(addr, name string) (answers [3]string) {
		t.Helper()
		a, err := chaos.Get(addr, "/timestamp?timeline="+name, trial.AnswerTimeout)
		if err != nil {
			t.Fatal(err)
		}
		answers[0] = fmt.Sprint(a.Status, " ", a.Code())
		resp, err := over(addr, "TS 3 LEASE TIMELINE "+name)
		if err != nil {
			t.Fatal(err)
		}
		answers[1], _, _ = strings.Cut(resp, "\r\n")
		call, err := get(http2, addr, name)
		if err != nil {
			t.Fatal(err)
		}
		answers[2] = call.status
		return answers
	}
	want := func(addr, name string, want [3]string) {
		t.Helper()
		await.Done(t, await.Timeout, func() (bool, string) {
			got := say(addr, name)
			return strings.HasPrefix(got[1], want[1]) && got[0] == want[0] && got[2] == want[2], fmt.Sprintf("%s of timeline %s: %q, want %q", addr, name, got, want)
		})
	}
	served, gone := [3]string{"200 ", "$16", "0"}, [3]string{"404 not_found", "-ERR not_found: ", "5"}
	each := func(name string, answers [3]string) {
		t.Helper()
		for _, addr := range append(c.Addrs(), c.proxy) {
			want(addr, name, answers)
		}
	}
	for _, name := range forwardedNames {
		each(name, served)
	}
	each("nothing", gone)
	operate(t, c.Cluster, "timeline", "delete", "two")
	each("two", gone)
	operate(t, c.Cluster, "timeline", "create", "two", "--group", "of-three")
	each("two", served)
	each(strings.Repeat("x", 65), [3]string{"400 invalid_argument", "-ERR timeline: a name of 65 bytes", "3"})
	// A connection whose client has said so is told the owner instead.
	c.spread()
	resp, err := over(c.Nodes[0].HTTPAddr, "CLIENT FORWARD OFF\r\nTS TIMELINE three")
	if at := c.Nodes[2].HTTPAddr; err != nil || !strings.Contains(resp, "-MOVED ") || !strings.Contains(resp, at) {
		t.Errorf("%q, %v; want %s", resp, err, at)
	}
}

// TestForward_WhatNoOwnerAnswersIsGivenUp, and served again afterwards, in both ways. A quota that is used up is that of one timeline.
func TestForward_WhatNoOwnerAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	c := startForwarded(t)
	others := c.Others(c.entry)
	for _, n := range others {
		n.Stop()
	}
	ask := func(names []string, want ...isotone.Code) {
		t.Helper()
		var all sync.WaitGroup
		for _, addr := range []string{c.entry.HTTPAddr, c.proxy} {
			for _, name := range names {
				target := "/timestamp?n=1000"
				if name != "" {
					target += "&timeline=" + name
				}
				all.Go(func() {
					a, err := chaos.Get(addr, target, trial.AnswerTimeout)
					if err != nil {
						t.Error(err)
					} else if code := a.Code(); len(want) > 0 && !slices.Contains(want, code) {
						t.Errorf("%s of %s: %d %q; want %q", target, addr, a.Status, code, want)
					}
				})
			}
		}
		all.Wait()
	}
	every := append([]string{""}, forwardedNames...)
	ask(every, isotone.CodeDeadlineExceeded, isotone.CodeNoLeader)
	for _, n := range others {
		n.Cont()
	}
	c.Settle()
	ask(every, "")
	operate(t, c.Cluster, "timeline", "quota", "one", "--timestamps", "1")
	ask([]string{"one"})                                                          // one of them still has the quota of the first second
	ask([]string{"one"}, isotone.CodeQuotaExceeded, isotone.CodeDeadlineExceeded) // the latter if a front gives up first
	ask([]string{"", "two", "three"}, "")
}
