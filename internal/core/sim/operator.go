package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// What operators do.

// operate carries out an operator action.
func (w *world) operate(k Kind) bool {
	l := w.leader()
	if l == nil || l.paused {
		return false
	}
	switch k {
	case Transfer:
		l.in.transfer = true
		w.wake(l)
		if w.chance(0.4) {
			w.after(w.between(0, w.cfg.tick), func() { w.part(Isolate, l, w.between(w.cfg.tick, 20*w.cfg.tick)) })
		}
		return true
	case Roll:
		w.roll(0)
		return true
	case RemoveMember:
		return w.remove(l)
	case AddMember, AddLearner, ReplaceMember:
		return w.join(k, l)
	case UpdateMember:
		w.update(l)
		return true
	case BadChange:
		w.proposeInvalid(l)
		return true
	case RaiseFloor:
		return w.raiseFloor(l)
	case RaiseLevel:
		return w.raiseLevel(l)
	}
	return false
}

// proposeInvalid proposes membership changes that must be refused, some to other nodes than
// the leader.
func (w *world) proposeInvalid(l *node) {
	members := l.replica.Members()
	some := members[w.rng.IntN(len(members))].ID
	for range 1 + w.rng.IntN(3) {
		c := &replica.MemberChange{Kind: replica.MemberChangeKind(w.rng.IntN(7)), Member: oracle.Member{ID: some, PeerAddr: "peer"}}
		if removed := l.replica.Removed(); len(removed) > 0 && w.chance(0.3) {
			c.Kind, c.Member.ID = replica.AddLearner, removed[w.rng.IntN(len(removed))]
		}
		switch w.rng.IntN(6) {
		case 0:
			c.Member.ID = 0
		case 1:
			c.Member.ID = w.rng.Uint64()
		case 2:
			c.Member.PeerAddr = strings.Repeat("x", 300)
		case 3:
			c.Member.PeerAddr = ""
		}
		// Not a valid change.
		_, isMember := w.member(l, c.Member.ID)
		isRemoved := slices.Contains(l.replica.Removed(), c.Member.ID)
		if c.Kind == replica.AddLearner && !isMember && !isRemoved && c.Member.PeerAddr == "peer" && c.Member.ID != 0 ||
			c.Kind == replica.ReplaceMember && isMember && c.Member.PeerAddr == "peer" || c.Kind == replica.UpdateMember && isMember ||
			c.Kind == replica.AddVoter && isMember || c.Kind == replica.Remove && isMember && l.replica.Voters() > 1 {
			continue
		}
		to := w.nodes[w.rng.IntN(len(w.nodes))]
		if w.chance(0.7) {
			to = l
		}
		w.after(w.between(0, 3*w.cfg.tick), func() {
			if to.up() && !to.paused {
				to.in.change = c
				w.wake(to)
			}
		})
	}
}

// member returns the record that n has of a member.
func (w *world) member(n *node, id uint64) (replica.Member, bool) {
	for _, m := range n.replica.Members() {
		if m.ID == id {
			return m, true
		}
	}
	return replica.Member{}, false
}

// roll restarts one node after the other after a clean shutdown.
func (w *world) roll(next int) {
	if next >= len(w.nodes) || w.quiet {
		return
	}
	n := w.nodes[next]
	if n.up() && !n.paused {
		n.in.transfer, n.in.stopIDs, n.in.stopOwning = true, true, true
		w.wake(n)
	}
	w.after(w.between(w.cfg.tick, 4*w.cfg.tick), func() {
		if n.up() && !n.paused {
			w.crash(n)
		}
		w.restart(n, w.between(0, 5*w.cfg.tick))
		w.after(w.between(20*w.cfg.tick, 60*w.cfg.tick), func() { w.roll(next + 1) })
	})
}

// remove removes a member if voters remain. It leaves only one or two voters now and then, and
// never if one member has lost its disk for good.
func (w *world) remove(l *node) bool {
	members := l.replica.Members()
	m := members[w.rng.IntN(len(members))]
	voters := l.replica.Voters()
	if !m.Learner && (voters <= 3 && (w.wiped || w.chance(0.7)) || voters == 1) {
		return false
	}
	w.propose(l, replica.Remove, m.ID)
	return true
}

func (w *world) propose(l *node, kind replica.MemberChangeKind, id uint64) {
	l.in.change = &replica.MemberChange{Kind: kind, Member: oracle.Member{ID: id, PeerAddr: w.addresses.next()}} // for a replacement
	w.wake(l)
}

// join adds a new machine as a learner, which may become a voter and replace a member.
func (w *world) join(k Kind, l *node) bool {
	if len(w.nodes) >= slots || len(l.replica.Members()) > 4 {
		return false
	}
	if k == ReplaceMember {
		return w.replace(l)
	}
	n := w.newNode()
	old := l.replica.Members()[0].ID
	auto := k == AddMember && w.chance(0.5)
	l.in.change = &replica.MemberChange{Kind: replica.AddLearner, Member: oracle.Member{ID: n.id, PeerAddr: n.place.addr, Promote: auto}}
	w.wake(l)
	w.restart(n, w.between(0, 10*w.cfg.tick))
	if k == AddLearner || auto {
		return true
	}
	w.promote(n, 5)
	if k == ReplaceMember && w.cfg.size > 1 {
		w.after(80*w.cfg.tick, func() {
			w.asLeader(func(l *node) {
				if l.replica.Voters() > 3 {
					w.propose(l, replica.Remove, old)
				}
			})
		})
	}
	return true
}

// replace has a member replaced by a new machine, which starts as soon as any node knows the
// ID that it gets. Often the old machine is dead, or has lost its disk.
func (w *world) replace(l *node) bool {
	members := l.replica.Members()
	old := w.node(members[w.rng.IntN(len(members))].ID)
	for _, n := range w.nodes {
		if n.tampered == wipedAmidst && w.chance(0.7) {
			old = n
		}
	}
	if old == nil {
		return false
	}
	w.propose(l, replica.ReplaceMember, old.id)
	if w.chance(0.3) && old != l && old.up() {
		w.crash(old)
		w.restart(old, w.between(0, 100*w.cfg.tick))
	}
	w.awaitReplacement(old, 20)
	return true
}

// awaitReplacement starts the machine that replaces old.
func (w *world) awaitReplacement(old *node, attempts int) {
	w.after(w.between(w.cfg.tick, 10*w.cfg.tick), func() {
		for _, o := range w.nodes {
			if !o.up() || len(w.nodes) >= slots {
				continue
			}
			for _, m := range o.replica.Members() {
				if m.Replaces == old.id && w.node(m.ID) == nil {
					n := w.newNode()
					n.id, n.place.addr = m.ID, m.PeerAddr
					w.start(n)
					return
				}
			}
		}
		if attempts > 0 {
			w.awaitReplacement(old, attempts-1)
		}
	})
}

// update changes the addresses of a member.
func (w *world) update(l *node) {
	members := l.replica.Members()
	id := members[w.rng.IntN(len(members))].ID
	m := oracle.Member{ID: id, PeerAddr: w.addrOf(id)}
	if n := w.node(id); w.chance(0.5) && n != nil {
		m.ClientAddr = w.clientAddr(n) // as its node tells it
	}
	l.in.change = &replica.MemberChange{Kind: replica.UpdateMember, Member: m}
	w.wake(l)
}

// raiseFloor raises the floor, at most by what the first of many takes to be reached by the
// clock again.
func (w *world) raiseFloor(l *node) bool {
	if w.floor.asked > 0 {
		return false
	}
	s := l.replica.Brief()
	w.floor.asked = s.Ceiling + uint64(w.between(0, time.Hour))
	w.trace("the floor is to be raised to %v", time.Duration(w.floor.asked)-worldStart)
	l.in.floor = &replica.FloorRequest{Time: w.floor.asked, Force: true}
	w.wake(l)
	return true
}

// floor is the one that an operator has raised.
type floor struct {
	asked uint64 // unix nanoseconds, 0: none
	// reached is when a leader first applied it.
	reached time.Duration
}

// noteFloor notes when the floor is applied: it takes the ceiling just beyond it, which no
// clock does.
func (w *world) noteFloor(n *node, ceiling uint64) {
	if w.floor.asked > 0 && w.floor.reached == 0 && ceiling-w.floor.asked <= 10 && n.replica.Brief().Serving {
		w.floor.reached = w.now
	}
}

// checkFloor checks an answer to a call that was made at a time.
func (w *world) checkFloor(invoked time.Duration, first uint64) {
	if w.floor.reached > 0 && invoked > w.floor.reached && first <= w.floor.asked {
		w.fail("I13: a timestamp of %d was issued after the floor was raised to %d", first, w.floor.asked)
	}
}

// promote makes a learner a voter once it has connected.
func (w *world) promote(n *node, attempts int) {
	w.after(w.between(10*w.cfg.tick, 40*w.cfg.tick), func() {
		w.asLeader(func(l *node) {
			if m, ok := w.member(l, n.id); ok && m.Learner {
				w.propose(l, replica.AddVoter, n.id)
			}
		})
		if attempts > 1 {
			w.promote(n, attempts-1)
		}
	})
}

func (w *world) asLeader(do func(*node)) {
	if l := w.leader(); l != nil && !l.paused {
		do(l)
	}
}
