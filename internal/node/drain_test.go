package node_test

import (
	"strings"
	"testing"
	"time"
)

// A node that drains says so at once, and goes on serving and leading.
func TestDrain_IsToldWhileTheNodeServes(t *testing.T) {
	c := newCluster(t, 3, makingIDs(time.Minute))
	leader := c.leader()
	n := c.nodes[leader]
	makes(t, n.IDs(0))
	if s := n.Status(); s.Draining || s.NotReady+s.NotReadyTimestamps+s.NotReadyIDs != "" {
		t.Fatalf("before: %+v", s)
	}
	n.Drain()
	const why = "this node is draining"
	if s := n.Status(); !s.Draining || s.NotReady != why || s.NotReadyTimestamps != why || s.NotReadyIDs != why || s.Leader != leader {
		t.Errorf("%+v", s)
	}
	if _, err := get(n, 1); err != nil {
		t.Error(err)
	}
	makes(t, n.IDs(0))
	for id, other := range c.nodes {
		if s := other.Status(); id != leader && (s.Draining || s.NotReady != "") {
			t.Errorf("node %d: %+v", id, s)
		}
	}
}

// Without a quorum there are no timestamps, and ids until the lease ends.
func TestStatus_TellsWhyThereAreNoTimestamps(t *testing.T) {
	c := newCluster(t, 3, makingIDs(time.Hour))
	last := c.nodes[c.leader()]
	makes(t, last.IDs(0))
	for id, n := range c.nodes {
		if n != last {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(liveness); ; time.Sleep(time.Millisecond) {
		s := last.Status()
		if strings.Contains(s.NotReadyTimestamps, "no leader") && s.NotReady == s.NotReadyTimestamps && s.NotReadyIDs == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", s)
		}
	}
}
