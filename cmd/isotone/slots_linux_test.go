package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/timeline"
)

// keyed asks for a timeline by a client of Redis Cluster, and checks the order of the answers.
type keyed struct {
	name  string
	check *lincheck.Online
	got   atomic.Int64
}

func (k *keyed) run(ctx context.Context, t *testing.T, c *redis.ClusterClient) {
	for i := 0; ctx.Err() == nil; i++ {
		floor := k.check.Begin()
		var answer string
		var err error
		if i%4 == 3 { // the pipelines of cluster clients follow redirects by themselves
			pipe := c.Pipeline()
			cmd := pipe.Do(ctx, "TSIN", k.name, 3)
			_, _ = pipe.Exec(ctx)
			answer, err = cmd.Text()
		} else {
			answer, err = c.Do(ctx, "TSIN", k.name, 3).Text()
		}
		if err != nil { // while its group moves
			if text := err.Error(); ctx.Err() == nil && (strings.HasPrefix(text, "ERR") || strings.HasPrefix(text, "NOPERM")) {
				t.Errorf("timeline %s: %v", k.name, err)
			}
			continue
		}
		r := isotone.Range{Count: 3}
		if err := r.First.UnmarshalBinary([]byte(answer)); err != nil {
			t.Errorf("timeline %s: %v", k.name, err)
			return
		}
		if err := k.check.End(floor, r); err != nil {
			t.Errorf("timeline %s: %v", k.name, err)
			return
		}
		k.got.Add(1)
	}
}

// slotCluster is three nodes with timelines: three in groups of hash slots, and one in a group of its own.
type slotCluster struct {
	*testing.T
	*cluster.Cluster
	nodes  string
	groups map[string]string // by timeline
}

func newSlotCluster(t *testing.T, slots string) *slotCluster {
	t.Helper()
	c := startProcessCluster(t, "TIMELINES=1", "CLUSTER_SLOTS="+slots)
	s := &slotCluster{t, c, strings.Join(c.Addrs(), ","), map[string]string{"orders": "", "tenant-7/log": "", "b": "", "apart": "own"}}
	s.does("group", "create", "own")
	for name, group := range s.groups {
		if group == "" {
			s.groups[name] = timeline.GroupOf(name)
			s.does("timeline", "create", name)
		} else {
			s.does("timeline", "create", name, "--group", group)
		}
	}
	return s
}

func (s *slotCluster) does(args ...string) {
	s.Helper()
	wantRun(s.T, 0, "", "", append(args, "--yes", "--timeout", "3m", "--endpoint", s.nodes)...)
}

// move has a node, 1 to 3, own the group of a timeline.
func (s *slotCluster) move(name string, node int) {
	s.Helper()
	moveGroup(s.T, s.groups[name], node, s.nodes)
}

// until waits until something holds of a group that a node owns. One that is too busy loses its groups, so it gets this one again now and then.
func (s *slotCluster) until(name string, node int, what string, holds func() bool) {
	s.Helper()
	looks := 0
	await.Until(s.T, what, func() bool {
		if looks++; looks%20 == 0 {
			s.move(name, node)
		}
		return holds()
	})
}

// moveGroup has a node own a group. A busy one may seem to be gone for a moment.
func moveGroup(t *testing.T, group string, node int, nodes string, flags ...string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("node %d owns the group %s", node, group), func() bool {
		code, _, _ := command(append([]string{"group", "move", group, fmt.Sprint(node), "--yes", "--endpoint", nodes}, flags...)...)
		return code == 0
	})
}

// ask says a command to a node, and returns how the answer begins.
func (s *slotCluster) ask(node int, commands ...string) string {
	s.Helper()
	c := rig.DialRedis(s.T, s.Addrs()[node-1], nil)
	defer c.Close()
	answer := ""
	for _, command := range commands {
		c.Send(command)
		answer = c.Receive()
	}
	return answer
}

// TestSlots_ClusterClientsReachTheOwner: an unmodified client of Redis Cluster asks for timelines while their groups move between three nodes.
func TestSlots_ClusterClientsReachTheOwner(t *testing.T) {
	t.Parallel()
	for _, slots := range []string{"leader", "timelines"} {
		t.Run(slots, func(t *testing.T) {
			t.Parallel()
			s := newSlotCluster(t, slots)
			s.checkRedirects(slots)
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), MaxRedirects: 8})
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			defer func() { cancel(); asking.Wait() }()
			var all []*keyed
			for name := range s.groups {
				k := &keyed{name: name, check: lincheck.NewOnline(0)}
				all = append(all, k)
				for range 2 {
					asking.Go(func() { k.run(ctx, t, c) })
				}
			}
			for round := range 6 {
				for i, k := range all {
					from := k.got.Load()
					await.Until(t, fmt.Sprintf("round %d: timeline %s goes on", round, k.name), func() bool { return k.got.Load() > from+50 || t.Failed() })
					s.move(k.name, (round+i)%3+1)
				}
			}
			if text, err := c.Do(ctx, "TS", 5).Text(); err != nil || len(text) != isotone.TimestampSize {
				t.Errorf("TS of the same client: %q, %v", text, err)
			}
		})
	}
}

// checkRedirects moves every group to each node, and asks all for it.
func (s *slotCluster) checkRedirects(slots string) {
	s.Helper()
	for owner := 1; owner <= 3; owner++ {
		for name := range s.groups {
			s.move(name, owner)
			word := "-MOVED"
			if s.groups[name] == "own" {
				word = "-ASK"
			}
			want := fmt.Sprintf("%s %d %s", word, timeline.Slot(name), s.Addrs()[owner-1])
			for node := 1; node <= 3; node++ {
				for _, command := range []string{"TSIN " + name, "TS64IN " + name + " 5 QUORUM"} {
					expect := want
					if node == owner {
						expect = "$"
					}
					// A node that has not applied the grant names the owner before.
					s.until(name, owner, fmt.Sprintf("%s at node %d gets %s", command, node, expect), func() bool { return strings.HasPrefix(s.ask(node, command), expect) })
				}
			}
			s.until(name, owner, fmt.Sprintf("ASKING, TSIN %s at its owner gets a timestamp", name), func() bool { return strings.HasPrefix(s.ask(owner, "ASKING", "TSIN "+name), "$16") })
			s.checkSlots(slots, name, owner)
		}
	}
}

// checkSlots waits until all nodes tell that the slot of a timeline belongs to its owner, or to the leader.
func (s *slotCluster) checkSlots(slots, name string, owner int) {
	s.Helper()
	if s.groups[name] == "own" {
		return
	}
	for _, addr := range s.Addrs() {
		c := redis.NewClient(&redis.Options{Addr: addr})
		s.until(name, owner, fmt.Sprintf("%s tells who has the slot of %s", addr, name), func() bool {
			want := s.Addrs()[owner-1]
			if slots == "leader" {
				leader, err := s.Leader(s.Context())
				if err != nil || leader == nil {
					return false
				}
				want = leader.Addr
			}
			told, err := c.ClusterShards(s.Context()).Result()
			for _, shard := range told {
				for _, span := range shard.Slots {
					if slot := int64(timeline.Slot(name)); err == nil && span.Start <= slot && slot <= span.End {
						return fmt.Sprintf("%s:%d", shard.Nodes[0].Endpoint, shard.Nodes[0].Port) == want
					}
				}
			}
			return false
		})
		_ = c.Close()
	}
}
