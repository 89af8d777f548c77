package timeline_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/isotone/isotone/internal/core/timeline"
)

// cluster is a log, and replicas that have applied some of it: what they own, they issue from, however late they are.
type cluster struct {
	t        reporter
	rand     *rand.Rand
	log      []timeline.Command
	first    uint64         // index of the first entry
	latest   timeline.Table // after the whole log
	replicas []*replica
	epoch    int // how often it was restored
	history  map[string][]*tenure
	now      uint64
}

type reporter interface {
	Fatalf(format string, args ...any)
	Helper()
}

// replica is one process.
type replica struct {
	id      uint64 // member and session
	table   timeline.Table
	applied uint64
	tenures map[string]*tenure
}

// tenure is what one process has issued of a timeline between two entries that concern it.
type tenure struct {
	epoch       int
	id, begin   uint64 // of the timeline; the entry
	low, high   uint64 // what was issued: low to high
	time, index uint64 // of the latest
}

var names = []string{"a", "b", "orders", "tenant-7/x"}

var groups = []string{"h000", "eu", "us", timeline.GroupOf("a")}

func newCluster(t reporter, seed uint64) *cluster {
	c := &cluster{t: t, rand: rand.New(rand.NewPCG(seed, 0)), history: map[string][]*tenure{}, now: 1000, first: 1}
	for id := range uint64(3) {
		c.replicas = append(c.replicas, &replica{id: id + 1, tenures: map[string]*tenure{}})
	}
	return c
}

// isMember takes 1 to 3 for members whose sessions are the same number.
func isMember(member, session uint64) bool { return member >= 1 && member <= 3 && session == member }

func (c *cluster) last() uint64 { return c.first + uint64(len(c.log)) - 1 }

// step does one random thing, and checks what must hold.
func (c *cluster) step() {
	c.now += c.rand.Uint64N(5)
	r := c.replicas[c.rand.IntN(len(c.replicas))]
	switch n := c.rand.IntN(100); {
	case n < 25:
		c.propose(c.random())
	case n < 55:
		for range c.rand.IntN(4) {
			c.apply(r)
		}
	case n < 57:
		c.snapshot(r)
	case n < 98:
		c.issue(r)
	default:
		if c.rand.IntN(20) == 0 {
			c.restore()
		}
	}
}

// propose appends a command to the log.
func (c *cluster) propose(command timeline.Command) {
	b := command.Append(nil)
	decoded, err := timeline.DecodeCommand(b)
	if err != nil || !bytes.Equal(decoded.Append(nil), b) {
		c.t.Fatalf("%+v is decoded as %+v, %v", command, decoded, err)
	}
	c.log = append(c.log, decoded)
	apply(&c.latest, c.last(), decoded)
}

// kindReserve stands for a reservation of the default timeline, which is no command of the table.
const kindReserve = timeline.KindQuota

func apply(table *timeline.Table, index uint64, command timeline.Command) []timeline.Refusal {
	if command.Kind == kindReserve {
		table.Reserve(command.Quota.Requests)
		return nil
	}
	return table.Apply(index, command, isMember)
}

// random draws a command, which the latest state may refuse.
func (c *cluster) random() timeline.Command {
	name, group := names[c.rand.IntN(len(names))], groups[c.rand.IntN(len(groups))]
	g, _ := c.latest.Group(group)
	member := c.rand.Uint64N(4)
	grant := timeline.Grant{Group: group, Member: member, Session: member, Replaces: g.Grant}
	if c.rand.IntN(10) == 0 {
		grant.Replaces++
	}
	time := c.now + c.rand.Uint64N(100)
	switch c.rand.IntN(12) {
	case 0, 1:
		return timeline.Command{Kind: kindReserve, Name: "x", Quota: timeline.Quota{Requests: time}}
	case 2, 3, 4:
		return timeline.Command{Kind: timeline.KindGrant, Grants: []timeline.Grant{grant}, Target: time * c.rand.Uint64N(2)}
	case 5, 6:
		creation := timeline.Creation{Name: name, Group: group, Above: time * c.rand.Uint64N(2)}
		if c.rand.IntN(2) == 0 {
			creation.Group = ""
		}
		return timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{creation}}
	case 7:
		return timeline.Command{Kind: timeline.KindDelete, Name: name}
	case 8:
		return timeline.Command{Kind: timeline.KindMove, Name: name, Group: group}
	case 9:
		return timeline.Command{Kind: timeline.KindFloor, Name: name, Time: time}
	case 10:
		kinds := []timeline.Kind{timeline.KindLeaseOn, timeline.KindLeaseEnd, timeline.KindLeaseOff, timeline.KindSeal, timeline.KindDrop}
		return timeline.Command{Kind: kinds[c.rand.IntN(len(kinds))], Name: name, Group: group, Lease: g.Lease}
	}
	return timeline.Command{Kind: timeline.KindMake, Group: group, Prefer: []uint64{c.rand.Uint64N(3)}}
}

// apply has a replica apply its next entry.
func (c *cluster) apply(r *replica) {
	if r.applied < c.last() {
		r.applied++
		apply(&r.table, r.applied, c.log[r.applied-c.first])
	}
	if r.applied == c.last() && r.table.Digest() != c.latest.Digest() {
		c.t.Fatalf("two replicas differ after entry %d", r.applied)
	}
}

// snapshot replaces the state of a replica by the latest.
func (c *cluster) snapshot(r *replica) {
	r.table, r.applied = c.decoded(), c.last()
}

func (c *cluster) decoded() timeline.Table {
	b := c.latest.Append(nil)
	table, err := timeline.Decode(b)
	if err != nil || table.Digest() != c.latest.Digest() || !bytes.Equal(table.Append(nil), b) {
		c.t.Fatalf("a snapshot is decoded as another: %v", err)
	}
	return table
}

// restore begins a cluster with the latest state, of which some reservations may have been lost.
func (c *cluster) restore() {
	floor := c.latest.Ceiling
	table := c.decoded()
	table.Ceiling -= min(table.Ceiling, c.rand.Uint64N(50))
	table = table.Restored(floor)
	c.epoch, c.log, c.first, c.latest = c.epoch+1, nil, 1, table
	for _, r := range c.replicas {
		r.applied, r.tenures = 0, map[string]*tenure{}
		r.table = c.decoded()
	}
}

// issue has a replica issue a timestamp of a timeline that it owns as far as it has applied the log, by a clock that may be wrong.
func (c *cluster) issue(r *replica) {
	name := names[c.rand.IntN(len(names))]
	have, ok := r.table.Timeline(name)
	g, _ := r.table.Group(have.Group)
	if !ok || g.Owner != r.id || g.Session != r.id {
		return
	}
	base, ceiling, ok := r.table.Bounds(name)
	if !ok {
		return
	}
	begin := max(have.Since, g.Grant)
	t := r.tenures[name]
	if t == nil || t.id != have.ID || t.begin != begin {
		t = &tenure{epoch: c.epoch, id: have.ID, begin: begin, time: base}
		t.low = base
		r.tenures[name] = t
		c.history[name] = append(c.history[name], t)
	}
	clock := c.now - min(c.now, 50) + c.rand.Uint64N(100)
	t.time = max(t.time, base, min(clock, ceiling-1)) // a floor raises the base within a tenure
	t.index++
	t.high = t.time
	if t.time >= ceiling {
		c.t.Fatalf("%s issues %d, in [%d, %d)", name, t.time, base, ceiling)
	}
}

// check wants the tenures of each timeline to issue different times, later ones larger times. The order of tenures is that of
// the log.
func (c *cluster) check() {
	for _, name := range names {
		for i, a := range c.history[name] {
			for _, b := range c.history[name][:i] {
				first, second := a, b
				if b.epoch < a.epoch || b.epoch == a.epoch && b.begin < a.begin {
					first, second = b, a
				}
				if first.high >= second.low {
					c.t.Fatalf("%s: the tenure since entry %d of epoch %d has issued times up to %d, and that since entry %d of epoch %d from %d on",
						name, first.begin, first.epoch, first.high, second.begin, second.epoch, second.low)
				}
			}
		}
	}
}

// run simulates a cluster. It returns how many tenures there were.
func run(t reporter, seed uint64) (tenures int) {
	c := newCluster(t, seed)
	for range 2000 {
		c.step()
	}
	c.check()
	for _, name := range names {
		tenures += len(c.history[name])
	}
	return tenures
}

// TestTable_LaterTenuresIssueLargerTimes (T2), whatever is deleted, created again, moved, restored, and however late owners are.
func TestTable_LaterTenuresIssueLargerTimes(t *testing.T) {
	tenures := 0
	for seed := range uint64(400) {
		tenures += run(t, seed)
	}
	if tenures < 10_000 {
		t.Errorf("%d tenures: the simulation does too little", tenures)
	}
}
