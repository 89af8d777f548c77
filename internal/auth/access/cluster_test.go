package access_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

// nodes are those of a cluster with one list of users, on one clock that the test sets.
type nodes struct {
	now  time.Duration
	all  []*access.Control
	cut  bool // no report arrives
	list string
}

func newNodes(t *testing.T, n int, list string) *nodes {
	c := &nodes{now: time.Hour, list: users(t, "", list)}
	for range n {
		c.all = append(c.all, open(t, access.Config{File: c.list, Now: func() time.Duration { return c.now }}))
	}
	return c
}

// as returns a session of a user at a node.
func (c *nodes) as(node int, name string) *access.Session {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	return c.all[node].Request(elsewhere, chains(cert), true)
}

// report has each node tell all others.
func (c *nodes) report() {
	for i, from := range c.all {
		report := from.Report()
		for j, to := range c.all {
			if i != j && !c.cut {
				to.Owe(report)
			}
		}
	}
}

// run has users ask these nodes for all that they get, for a while. Nodes answer 100 times a second. It returns what was served.
func (c *nodes) run(of []*access.Session, requests, timestamps uint64, howLong time.Duration) (served uint64) {
	const step = 10 * time.Millisecond
	for end := c.now + howLong; c.now < end; c.now += step {
		for _, s := range of {
			for s.Take(requests, timestamps) == nil {
				served += requests
			}
		}
		if c.now%access.ReportEvery == 0 {
			c.report()
		}
	}
	return served
}

const limitedUser = `{"users": {"u": {"roles": ["all"], "limits": {"requests": 100, "timestamps": 1000}}}}`

// TestCluster_AUserGetsItsLimitOnce, however it spreads its requests over the nodes: a second's worth of each node at once, and what
// they serve before they hear of each other.
func TestCluster_AUserGetsItsLimitOnce(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		asked                int // nodes
		requests, timestamps uint64
		least, most          uint64 // served in two minutes: the limit, a second's worth of each node, and a tenth of it
	}{
		{"requests, three nodes", 3, 1, 1, 12000, 12000 + 300 + 30},
		{"requests, two of three nodes", 2, 1, 1, 12000, 12000 + 200 + 20},
		{"timestamps, three nodes", 3, 1, 50, 2400, 2400 + 60 + 6},
		{"five seconds' worth a request", 3, 1, 5000, 24, 24 + 3},
		{"pipelines", 3, 10, 10, 12000, 12000 + 300 + 30},
		{"one node alone", 1, 1, 1, 12000, 12000 + 100},
	} {
		c := newNodes(t, 3, limitedUser)
		var of []*access.Session
		for i := range tc.asked {
			of = append(of, c.as(i, "u"))
		}
		if served := c.run(of, tc.requests, tc.timestamps, 2*time.Minute); served < tc.least || served > tc.most {
			t.Errorf("%s: %d were served, want %d to %d", tc.name, served, tc.least, tc.most)
		}
	}
}

// TestCluster_ANodeOwesWhatOthersHaveServed, and nothing twice.
func TestCluster_ANodeOwesWhatOthersHaveServed(t *testing.T) {
	c := newNodes(t, 2, limitedUser)
	a, b := c.as(0, "u"), c.as(1, "u")
	if err := a.Take(100, 100); err != nil {
		t.Fatal(err)
	}
	c.report()
	if err := b.Take(1, 1); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("the other node has served all: %v", err)
	}
	for range 10 {
		c.report() // what is owed is not told, and nothing new was served
	}
	c.now += time.Second
	for _, s := range []*access.Session{a, b} {
		if !s.Spend(100, 0) {
			t.Error("a second later, a second's worth is refused")
		}
	}
}

// TestCluster_WhatFailsCountsForOneNode: it may be on its way to another one, which counts it when it serves it.
func TestCluster_WhatFailsCountsForOneNode(t *testing.T) {
	c := newNodes(t, 2, limitedUser)
	a, b := c.as(0, "u"), c.as(1, "u")
	if err := a.Charge(100, 100); err != nil {
		t.Fatal(err)
	}
	c.report()
	if !b.Spend(100, 100) || a.Spend(1, 1) {
		t.Error("requests that were not answered count for the other node, or not for their own")
	}
}

// TestCluster_NodesThatAreCutOffCountByThemselves, and go on with what is told from then on.
func TestCluster_NodesThatAreCutOffCountByThemselves(t *testing.T) {
	c := newNodes(t, 2, limitedUser)
	of := []*access.Session{c.as(0, "u"), c.as(1, "u")}
	c.cut = true
	if served := c.run(of, 1, 1, 60*time.Second); served < 2*6000 {
		t.Errorf("cut off: %d were served", served)
	}
	c.cut = false
	if served := c.run(of, 1, 1, 60*time.Second); served < 5900 || served > 6300 {
		t.Errorf("connected again: %d were served", served)
	}
}

// TestCluster_AUserIsLockedOutForAMinuteAtMost, if the nodes disagree on its limit, or a report is wrong.
func TestCluster_AUserIsLockedOutForAMinuteAtMost(t *testing.T) {
	c := newNodes(t, 1, limitedUser)
	s := c.as(0, "u")
	for _, n := range []uint64{1e6, 1 << 63} {
		c.all[0].Owe(binary.AppendUvarint(binary.AppendUvarint([]byte("\x01u"), n), n))
		if s.Spend(1, 1) {
			t.Errorf("%d are owed, and one more is served", n)
		}
	}
	if c.now += time.Minute; !s.Spend(1, 1) {
		t.Error("after a minute it is still refused")
	}
}

// TestCluster_ReportsAreBounded: those who find no place in one come with a later one, with all that they have used.
func TestCluster_ReportsAreBounded(t *testing.T) {
	const n = 3000
	var list strings.Builder
	name := func(i int) string { return fmt.Sprintf("%064d", i) }
	for i := range n {
		fmt.Fprintf(&list, `,"%s": {"roles": ["all"], "limits": {"requests": %d}}`, name(i), []int{100, 0}[i%2])
	}
	c := newNodes(t, 2, `{"users": {`+list.String()[1:]+`}}`)
	for i := range n {
		if err := c.as(0, name(i)).Take(100, 1); err != nil {
			t.Fatal(err)
		}
	}
	reports, limited := 0, 0
	for report := c.all[0].Report(); report != nil; report = c.all[0].Report() {
		if reports++; len(report) > access.ReportMax {
			t.Fatalf("a report of %d bytes", len(report))
		}
		c.all[1].Owe(report)
	}
	for i := range n {
		if !c.as(1, name(i)).Spend(1, 1) {
			limited++
		}
	}
	if reports < 2 || limited != n/2 {
		t.Errorf("%d reports; %d users have used up their limit, want %d", reports, limited, n/2)
	}
}

// TestCluster_ReportsThatCannotBeRead count for nothing, and neither do users that the list of this node does not have.
func TestCluster_ReportsThatCannotBeRead(t *testing.T) {
	entry := func(name string, n uint64) string {
		return string(binary.AppendUvarint(binary.AppendUvarint(append([]byte{byte(len(name))}, name...), n), n))
	}
	for _, report := range []string{"", "\x01", "\x01u", "\x01u\x64", "\x01u\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\xffu\x64\x64", "\x00\x64\x64", entry("other", 100), "\x05" + entry("u", 100)} {
		c := newNodes(t, 1, limitedUser)
		c.all[0].Owe([]byte(report))
		if !c.as(0, "u").Spend(100, 100) {
			t.Errorf("%q counts", report)
		}
	}
	c := newNodes(t, 1, limitedUser)
	c.all[0].Owe([]byte(entry("other", 100) + entry("u", 100) + "\xff"))
	if c.as(0, "u").Spend(1, 0) {
		t.Error("what could be read does not count")
	}
}

// TestUses_CountByUser what was served and refused, and those without a name together.
func TestUses_CountByUser(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {"a": {"roles": ["ids"], "limits": {"requests": 10}}, "b": {"roles": ["ids"]}, "idle": {"roles": ["all"]}}}`)})
	as := (&nodes{all: []*access.Control{c}}).as
	a, b, nobody := as(0, "a"), as(0, "b"), session(t, c, elsewhere)
	for _, s := range []*access.Session{a, b, nobody} {
		_ = s.Take(10, 20)
		_ = s.Take(1, 0)
		_ = s.Require(access.Timestamps)
	}
	a.Spend(1, 1)
	b.Used(5, 6)
	want := []access.Use{
		{User: "(anonymous)", Requests: 11, Timestamps: 20, LackedRole: 1},
		{User: "a", Requests: 10, Timestamps: 20, LackedRole: 1, OverQuota: 1},
		{User: "b", Requests: 16, Timestamps: 26, LackedRole: 1},
	}
	if got := c.Uses(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	unlisted := open(t, access.Config{})
	_ = (&nodes{all: []*access.Control{unlisted}}).as(0, "who").Take(1, 2)
	if got := fmt.Sprint(unlisted.Uses()); got != "[{(others) 1 2 0 0}]" {
		t.Errorf("without a list: %s", got)
	}
}

// BenchmarkSession_Take of a user with limits, and without: nothing is allocated.
func BenchmarkSession_Take(b *testing.B) {
	for name, limits := range map[string]string{"limited": `{"requests": 1000000000}`, "unlimited": `{}`} {
		c := open(b, access.Config{File: users(b, "", `{"users": {"u": {"roles": ["all"], "limits": `+limits+`}}}`)})
		s := (&nodes{all: []*access.Control{c}}).as(0, "u")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = s.Take(1, 1)
			}
		})
	}
}

// BenchmarkControl_Report of the longest list, in which nobody has asked for anything.
func BenchmarkControl_Report(b *testing.B) {
	var list strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&list, `,"user-%d": {"roles": ["all"], "limits": {"requests": 100}}`, i)
	}
	c := open(b, access.Config{File: users(b, "", `{"users": {`+list.String()[1:]+`}}`)})
	for b.Loop() {
		c.Report()
	}
}
