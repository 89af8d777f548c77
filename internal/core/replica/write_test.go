package replica_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/core/replica"
)

// queue returns how full a queue of a node is. None may be longer than its bound.
func (c *cluster) queue(n *node, name string) (length, limit int) {
	c.t.Helper()
	for _, q := range n.Queues() {
		if q.Length > q.Max {
			c.t.Fatalf("I7: node %d: %d %s, at most %d", n.id, q.Length, q.Name, q.Max)
		}
		if q.Name == name {
			length, limit = q.Length, q.Max
		}
	}
	if limit == 0 {
		c.t.Fatalf("no queue of %s", name)
	}
	return length, limit
}

const (
	entriesQueue   = "entries not on disk"
	responsesQueue = "messages that wait for the disk"
)

// followers returns all running nodes but one.
func (c *cluster) followers(leader *node) (list []*node) {
	for _, n := range c.running() {
		if n != leader {
			list = append(list, n)
		}
	}
	return list
}

// wantCaughtUp expects all nodes to have applied the same.
func (c *cluster) wantCaughtUp() {
	c.t.Helper()
	want := c.leader().Status().Applied
	for _, n := range c.running() {
		if got := n.Status().Applied; got != want {
			c.t.Errorf("node %d has applied %d, the leader %d", n.id, got, want)
		}
	}
}

// outgrowsResponses reports whether more messages wait for a disk that hangs than there are kinds of
// them (I7).
func outgrowsResponses(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	f.stalled = true
	c.tick(300)
	got, _ := c.queue(f, responsesQueue)
	return got > 6
}

func TestWrite_OneMessageOfEachKindWaits(t *testing.T) {
	if outgrowsResponses(t) {
		t.Error("more messages wait than there are kinds")
	}
}

// TestWrite_AFollowerWhoseDiskHangsCollectsLittle is found 4 of the reading of the first
// release: a follower queued a write for every append and probe.
func TestWrite_AFollowerWhoseDiskHangsCollectsLittle(t *testing.T) {
	for i := range 2 {
		c := newCluster(t, 3, nil)
		l := c.leader()
		c.must(l)
		f := c.followers(l)[i]
		f.stalled = true
		for range 300 { // 3 s
			c.tick(1)
			for range 100 {
				c.must(l)
			}
			if got, _ := c.queue(f, responsesQueue); got > 6 {
				t.Fatalf("%d messages wait", got)
			}
		}
		if f.flying == nil {
			t.Fatal("nothing is under way")
		}
		if got, _ := c.queue(f, entriesQueue); got > 100 {
			t.Errorf("%d entries for 30 reservations", got)
		}
		f.stalled = false
		if writes := c.flush(f); len(writes) != 2 {
			t.Errorf("%d writes to catch up", len(writes))
		}
		c.settle()
		c.wantCaughtUp()
	}
}

// TestWrite_ALeaderWhoseDiskHangsProposesNothingMoreInTheEnd lets it try for so long to
// register its followers that its log is full.
func TestWrite_ALeaderWhoseDiskHangsProposesNothingMoreInTheEnd(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) {
		cfg.EpochTicks, cfg.ReservationsMissedMax, cfg.SnapshotEvery = 1, 1_000_000, 1_000_000
	})
	l := c.leader()
	l.stalled = true
	for _, f := range c.followers(l) {
		c.start(f)
	}
	c.greet()
	full := 0
	for range 2500 {
		c.tick(1)
		if length, limit := c.queue(l, entriesQueue); length > limit-2 {
			full++
		}
	}
	if full < 100 {
		t.Errorf("it was full for %d ticks only", full)
	}
	before := c.must(l) // time holds
	l.stalled = false
	c.settle()
	c.tick(20)
	if after := c.must(l); after.Time < before.Time+uint64(10*tick) {
		t.Errorf("time went on from %v to %v", before, after)
	}
	c.wantCaughtUp()
}

// TestWrite_AFollowerDropsAppendsThatItHasNoRoomFor: they are lost, as on the network.
func TestWrite_AFollowerDropsAppendsThatItHasNoRoomFor(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.tick(20)
	f.stalled = true
	term, last := l.Status().Term, f.Hello().LastIndex
	for _, count := range []uint64{4000, 97, 96, 1} {
		before, limit := c.queue(f, entriesQueue)
		m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: new(l.id), To: new(f.id), Term: new(term), LogTerm: new(term), Index: new(last)}
		for i := range count {
			m.Entries = append(m.Entries, &raftpb.Entry{Index: new(last + i + 1), Term: new(term)})
		}
		c.turn(f, &replica.Input{Messages: []*raftpb.Message{m}})
		after, _ := c.queue(f, entriesQueue)
		if fits := before+int(count) <= limit; fits != (after == before+int(count)) || !fits && after != before {
			t.Errorf("%d entries in addition to %d make %d, of at most %d", count, before, after, limit)
		}
		last += uint64(after - before)
	}
	if outgrowsItsBound(t) {
		t.Error("I7: it takes in more than that in the long run")
	}
}

// outgrowsItsBound reports whether a follower accepts more entries than it has room for
// while its disk hangs (I7).
func outgrowsItsBound(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.tick(20)
	f.stalled = true
	term, last := l.Status().Term, f.Hello().LastIndex
	for range 50 {
		m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: new(l.id), To: new(f.id), Term: new(term), LogTerm: new(term), Index: new(last)}
		for range 100 {
			last++
			m.Entries = append(m.Entries, &raftpb.Entry{Index: new(last), Term: new(term)})
		}
		c.turn(f, &replica.Input{Messages: []*raftpb.Message{m}})
	}
	queues := f.Queues()
	return slices.ContainsFunc(queues[:], func(q replica.Queue) bool { return q.Length > q.Max })
}

// TestWrite_NothingIsPromisedBeforeItIsDurable stalls disks at random, and crashes nodes with
// what they have not written (I8).
func TestWrite_NothingIsPromisedBeforeItIsDurable(t *testing.T) {
	for seed := range uint64(20) {
		c := newCluster(t, 3, func(cfg *replica.Config) { cfg.SnapshotEvery = 20 })
		rng := rand.New(rand.NewPCG(seed, 2))
		c.drop = func(m *raftpb.Message) bool {
			if fault := c.nodes[m.GetFrom()].disk.lacks(m); fault != "" {
				t.Fatalf("I8: seed %d: %s: %v", seed, fault, m)
			}
			return rng.IntN(50) == 0
		}
		for range 1000 {
			n := c.nodes[1+rng.Uint64N(3)]
			switch rng.IntN(12) {
			case 0, 1:
				n.stalled = !n.stalled
			case 2:
				c.turn(n, &replica.Input{Transfer: true})
			case 3:
				if rng.IntN(10) == 0 {
					c.start(n)
					c.greet()
				}
			case 4:
				c.ask(n, 1)
			}
			c.tick(1)
		}
		for _, n := range c.nodes {
			n.stalled = false
		}
		c.drop = nil
		c.tick(50)
		c.must(c.leader())
	}
}

// lacks says what of that which a message promises is not on disk, or "". If a later term is on disk, its leader may have cut off what was there when the message was made.
func (d *disk) lacks(m *raftpb.Message) string {
	last, lastTerm := d.last()
	term := d.hard.GetTerm()
	if m.GetTerm() < term {
		for t, index := range d.had { // a write may bring several terms
			if t >= m.GetTerm() {
				last = max(last, index)
			}
		}
	}
	switch m.GetType() {
	case raftpb.MsgAppResp:
		if !m.GetReject() && (m.GetIndex() > last || m.GetTerm() > term) {
			return fmt.Sprintf("on disk is index %d, term %d", last, term)
		}
	case raftpb.MsgVoteResp:
		if !m.GetReject() && (m.GetTerm() > term || m.GetTerm() == term && d.hard.GetVote() != m.GetTo()) {
			return fmt.Sprintf("on disk is a vote for node %d in term %d", d.hard.GetVote(), term)
		}
	case raftpb.MsgVote:
		if m.GetIndex() > last || m.GetTerm() >= term && m.GetIndex() == last && m.GetLogTerm() != lastTerm {
			return fmt.Sprintf("on disk is index %d of term %d", last, lastTerm)
		}
	case raftpb.MsgApp, raftpb.MsgHeartbeat:
		if m.GetTerm() > term {
			return fmt.Sprintf("on disk is term %d", term)
		}
	}
	return ""
}

// TestWrite_AnswersOfTheLeaderWaitForItsReservation: a leader whose disk stalls from its
// election on issues nothing.
func TestWrite_AnswersOfTheLeaderWaitForItsReservation(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	c.must(n)
	c.start(n)
	n.stalled = true
	token := c.ask(n, 1)
	c.tick(50)
	if got := n.outcome(token); got == "ok" {
		t.Error("answered by a reservation that is not durable")
	}
	n.stalled = false
	c.settle()
	c.must(n)
}

// TestWrite_AMergedWriteIsWorthItsParts applies random writes to one disk one by one, and to
// another one as a single write.
func TestWrite_AMergedWriteIsWorthItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newWriter(t)
		apart, merged := g.disk, g.disk
		merged.entries = slices.Clone(merged.entries)
		all := &replica.Write{}
		for range rapid.IntRange(1, 12).Draw(t, "writes") {
			w := g.write(t)
			apart.save(w)
			all.Merge(w)
		}
		merged.save(all)
		if got, want := merged.plain(), apart.plain(); !reflect.DeepEqual(got, want) {
			t.Fatalf("merged:\n%s\none by one:\n%s", got, want)
		}
	})
}

// plain returns what is on a disk, for comparison.
func (d *disk) plain() (lines []string) {
	s := d.snap.GetMetadata()
	lines = append(lines, fmt.Sprintf("cluster %d, hard state %v, snapshot %d of term %d: %s", d.cluster, d.hard, s.GetIndex(), s.GetTerm(), d.snap.GetData()))
	for _, e := range d.entries {
		lines = append(lines, fmt.Sprintf("entry %d of term %d: %s", e.GetIndex(), e.GetTerm(), e.GetData()))
	}
	return lines
}

// writer draws writes as Raft may ask for them while a disk is busy.
type writer struct {
	disk              disk
	term              uint64
	last, commit      uint64 // of the log in memory
	compacted, stable uint64 // own snapshots lie between: what is in the log on disk as well
	number            int
}

func newWriter(t *rapid.T) *writer {
	g := &writer{term: 3, compacted: 10}
	g.disk.save(&replica.Write{Snapshot: g.snapshot(10), HardState: &raftpb.HardState{Term: new(g.term), Commit: new(uint64(10))}})
	g.last, g.commit = 10, 10
	g.disk.save(&replica.Write{Entries: g.entries(11, rapid.Uint64Range(1, 8).Draw(t, "entries at first"))})
	g.stable = g.last
	return g
}

func (g *writer) data() []byte {
	g.number++
	return fmt.Append(nil, "number ", g.number)
}

func (g *writer) snapshot(index uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: g.data(), Metadata: &raftpb.SnapshotMetadata{Index: new(index), Term: new(g.term)}}
}

func (g *writer) entries(first, count uint64) (list []*raftpb.Entry) {
	for i := range count {
		list = append(list, &raftpb.Entry{Index: new(first + i), Term: new(g.term), Data: g.data()})
	}
	g.last = first + count - 1
	return list
}

func (g *writer) write(t *rapid.T) *replica.Write {
	w := &replica.Write{}
	does := func(what string, of int) bool { return rapid.IntRange(1, of).Draw(t, what) == 1 }
	if does("a new term", 4) {
		g.term++
	}
	if does("snapshot of the leader", 8) {
		g.last += rapid.Uint64Range(1, 5).Draw(t, "ahead")
		g.commit, g.stable = g.last, 0
		w.Snapshot = g.snapshot(g.last)
	}
	if does("entries", 2) {
		first := rapid.Uint64Range(g.commit+1, g.last+1).Draw(t, "first")
		w.Entries = g.entries(first, rapid.Uint64Range(1, 4).Draw(t, "entries"))
		g.stable = min(g.stable, first-1)
	}
	if does("hard state", 2) {
		g.commit = rapid.Uint64Range(g.commit, g.last).Draw(t, "commit")
		w.HardState = &raftpb.HardState{Term: new(g.term), Vote: new(rapid.Uint64Range(0, 3).Draw(t, "vote")), Commit: new(g.commit)}
	}
	if end := min(g.commit, g.stable); w.Snapshot == nil && end > g.compacted && does("own snapshot", 3) {
		g.compacted = rapid.Uint64Range(g.compacted+1, end).Draw(t, "compacted")
		w.Compact = g.snapshot(g.compacted)
	}
	if g.disk.cluster == 0 && does("name", 5) {
		w.ClusterID, g.disk.cluster = 77, 77
	}
	return w
}

func TestWrite_TheLatestMessageOfItsKindWaits(t *testing.T) {
	message := func(kind raftpb.MessageType, to, term, index uint64, reject bool) *raftpb.Message {
		return &raftpb.Message{Type: kind.Enum(), To: new(to), Term: new(term), Index: new(index), Reject: new(reject)}
	}
	for name, tc := range map[string]struct {
		waits, comes *raftpb.Message
		kept         string
	}{
		"a larger index":     {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgAppResp, 2, 5, 11, false), "second"},
		"a smaller index":    {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgAppResp, 2, 5, 9, false), "first"},
		"a newer term":       {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgAppResp, 2, 6, 3, false), "second"},
		"an older term":      {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgAppResp, 2, 4, 20, false), "first"},
		"a refusal":          {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgAppResp, 2, 5, 10, true), "both"},
		"to another node":    {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgAppResp, 3, 5, 10, false), "both"},
		"a vote":             {message(raftpb.MsgAppResp, 2, 5, 10, false), message(raftpb.MsgVoteResp, 2, 5, 0, false), "both"},
		"Raft's note":        {message(raftpb.MsgStorageAppendResp, 1, 5, 10, false), message(raftpb.MsgStorageAppendResp, 1, 5, 7, false), "second"},
		"the same once more": {message(raftpb.MsgVoteResp, 2, 5, 0, false), message(raftpb.MsgVoteResp, 2, 5, 0, false), "second"},
	} {
		w := &replica.Write{}
		w.AddResponse(tc.waits)
		w.AddResponse(tc.comes)
		var kept string
		switch list := w.Responses(); {
		case len(list) == 2:
			kept = "both"
		case list[0] == tc.waits:
			kept = "first"
		case list[0] == tc.comes:
			kept = "second"
		}
		if kept != tc.kept {
			t.Errorf("%s: kept is %s, want %s", name, kept, tc.kept)
		}
	}
}
