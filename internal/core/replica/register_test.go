package replica_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// configured gives all nodes their addresses by settings, as PEERS does.
func configured(cfg *replica.Config) { cfg.Self.Configured = true }

// onRecord returns the peer address of a member as the leader has it on record.
func (c *cluster) onRecord(id uint64) string {
	for _, m := range c.leader().Members() {
		if m.ID == id {
			return m.PeerAddr
		}
	}
	return ""
}

// restart starts a node again, as a process whose settings say addr; isSet is false if they say none,
// and addr is where it listens.
func (c *cluster) restart(n *node, addr string, isSet bool) {
	n.cfg.Self.PeerAddr, n.cfg.Self.Configured = addr, isSet
	n.cfg.Founders = slices.Clone(n.cfg.Founders)
	for i := range n.cfg.Founders {
		if n.cfg.Founders[i].ID == n.id {
			n.cfg.Founders[i].PeerAddr = addr
		}
	}
	c.crash(n, true)
	c.greet()
	c.leader()
	c.tick(200)
	c.settle()
}

func TestRegister_TheRecordFollowsAChangeOfTheSettings(t *testing.T) {
	c := newCluster(t, 3, configured)
	for id, n := range c.nodes {
		c.leader()
		c.tick(50)
		c.restart(n, "moved:1", true)
		if got := c.onRecord(id); got != "moved:1" {
			t.Errorf("node %d says moved:1 and is on record at %s", id, got)
		}
		c.restart(n, "back:1", true)
		if got := c.onRecord(id); got != "back:1" {
			t.Errorf("node %d says back:1 and is on record at %s", id, got)
		}
	}
}

// addressHarms are the bugs in what is recorded as the address of a member.
var addressHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.KeepAddress: keepsAddress,
	mutant.RecordLocal: recordsLocal,
}

func TestRegister_NoHarmIsDone(t *testing.T) { wantNoHarm(t, addressHarms) }

// keepsAddress reports whether members are still told the address that node 3 had before it moved.
func keepsAddress(t *testing.T) bool {
	c := newCluster(t, 3, configured)
	c.leader()
	c.tick(50)
	c.restart(c.nodes[3], "moved:1", true)
	return c.onRecord(3) == "peer3:1"
}

// TestRegister_AnOperatorsAddressStays: only a change of the settings replaces it, and no process that
// was started with the same ones.
func TestRegister_AnOperatorsAddressStays(t *testing.T) {
	c := newCluster(t, 3, configured)
	l := c.leader()
	c.tick(50)
	if err := c.changeMember(l, replica.UpdateMember, oracle.Member{ID: 3, PeerAddr: "set:1"}); err != nil {
		t.Fatal(err)
	}
	c.tick(50)
	for _, addr := range []string{"peer3:1", "set:1", "set:1"} {
		c.restart(c.nodes[3], addr, true)
		if got := c.onRecord(3); got != "set:1" {
			t.Errorf("after a start with %s it is on record at %s", addr, got)
		}
	}
	c.restart(c.nodes[3], "peer3:1", true)
	if got := c.onRecord(3); got != "peer3:1" {
		t.Errorf("the settings have changed, and it is on record at %s", got)
	}
}

// TestRegister_WhereANodeListensIsNoAddress: only settings name one; a node without tells the one on
// record.
func TestRegister_WhereANodeListensIsNoAddress(t *testing.T) {
	c := newCluster(t, 3, configured)
	c.leader()
	c.tick(50)
	for _, addr := range []string{"0.0.0.0:1", "172.17.0.3:1"} {
		c.restart(c.nodes[3], addr, false)
		if got, told := c.onRecord(3), c.nodes[3].Hello().PeerAddr; got != "peer3:1" || told != "peer3:1" {
			t.Errorf("it listens on %s, tells %s, and is on record at %s", addr, told, got)
		}
	}
}

// localAtFormation forms a cluster of which node 3 calls itself localhost, and returns its record.
func localAtFormation(t *testing.T) (*cluster, string) {
	c := newCluster(t, 3, func(cfg *replica.Config) {
		configured(cfg)
		if cfg.Self.NodeID == 3 {
			cfg.Self.PeerAddr = "localhost:1"
			cfg.Founders[2].PeerAddr = "localhost:1"
		}
	})
	c.leader()
	c.tick(50)
	return c, c.onRecord(3)
}

func TestRegister_WhatNobodyElseCanDialIsNotRecorded(t *testing.T) {
	c, addr := localAtFormation(t)
	if addr != "" {
		t.Errorf("node 3 is on record at %s", addr)
	}
	for _, tt := range []struct{ set, want string }{
		{"right3:1", "right3:1"}, {"127.0.0.1:1", "right3:1"}, {"[::]:1", "right3:1"}, {"better3:1", "better3:1"},
	} {
		c.restart(c.nodes[3], tt.set, true)
		if got := c.onRecord(3); got != tt.want {
			t.Errorf("node 3 says %s and is on record at %s, want %s", tt.set, got, tt.want)
		}
	}
}

// recordsLocal reports whether other members are told an address that they cannot dial.
func recordsLocal(t *testing.T) bool {
	_, addr := localAtFormation(t)
	return addr == "localhost:1"
}

// TestRegister_NodesOnOneMachineMayBeLocal: then all of them reach the address.
func TestRegister_NodesOnOneMachineMayBeLocal(t *testing.T) {
	addrs := []string{"localhost:1", "127.0.0.1:2", "[::1]:3"}
	c := newCluster(t, 3, func(cfg *replica.Config) {
		configured(cfg)
		for i := range cfg.Founders {
			cfg.Founders[i].PeerAddr = addrs[i]
		}
		cfg.Self.PeerAddr = addrs[cfg.Self.NodeID-1]
	})
	c.leader()
	c.tick(50)
	for i, want := range addrs {
		if got := c.onRecord(uint64(i + 1)); got != want {
			t.Errorf("node %d is on record at %q, want %q", i+1, got, want)
		}
	}
}
