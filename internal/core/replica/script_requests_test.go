package replica_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// The commands of scripts that ask nodes for something, and those that show what they know.

func (s *script) request(t *testing.T, a args) {
	mode := map[string]isotone.ReadMode{"": isotone.ReadQuorum, "quorum": isotone.ReadQuorum, "lease": isotone.ReadLease}
	m, ok := mode[a["mode"]]
	if !ok {
		t.Fatalf("mode %q", a["mode"])
	}
	n := s.node(t, a, "node")
	var floor isotone.Timestamp
	if a.has("floor") {
		floor = isotone.Timestamp{Time: uint64(s.began + a.duration(t, "floor")), Index: a.number(t, "index", 0)}
	}
	token := s.askAbove(n, m, floor, a.number(t, "count", 1))
	s.asked(n, token)
}

// asked shows what came of a request at once.
func (s *script) asked(n *node, token uint64) {
	if !s.quiet {
		s.printf("> %d: request %d", n.id, token)
	}
	s.report(n)
}

func (s *script) transfer(t *testing.T, a args) {
	s.step(s.node(t, a, "node"), "transfer", &replica.Input{Transfer: true})
}

func (s *script) leaseRequest(t *testing.T, a args) {
	q := s.wants(a.number(t, "session", 0))
	if a.has("worker") {
		q.Fixed = int(a.number(t, "worker", 0))
	}
	if a.has("ahead") {
		q.FromMillis += uint64(a.duration(t, "ahead") / time.Millisecond)
	}
	n := s.node(t, a, "node")
	s.asked(n, s.lease(n, q))
}

func (s *script) releaseRequest(t *testing.T, a args) {
	n := s.node(t, a, "node")
	millis := func(name string) uint64 { return uint64((s.began + a.duration(t, name)) / time.Millisecond) }
	s.asked(n, s.lease(n, replica.LeaseRequest{Session: a.number(t, "session", 0), Release: &oracle.Used{
		Worker: uint16(a.number(t, "worker", 0)), Start: millis("start"), Next: millis("next"),
	}}))
}

func (s *script) giveBack(t *testing.T, a args) {
	n := s.node(t, a, "node")
	s.cluster.release(n)
	s.report(n)
}

func (s *script) raiseLevel(t *testing.T, a args) {
	n := s.node(t, a, "node")
	s.step(n, "raise the level", &replica.Input{RaiseLevel: true})
	if n.levelRefused != nil {
		s.printf("  %d: refused: %v", n.id, n.levelRefused)
	}
}

// spoil changes the state of a node, as bad memory would.
func (s *script) spoil(t *testing.T, a args) {
	s.node(t, a, "node").Spoil(func(state *oracle.State) {
		state.Workers = append(state.Workers, oracle.WorkerLease{Worker: 7, Start: 1, End: 2})
	})
}

func (s *script) levels(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		l := n.Levels()
		s.printf("%d: the cluster is at level %d, this version knows %d", n.id, l.Level, l.Newest)
	}
}

func (s *script) propose(t *testing.T, a args, kind replica.MemberChangeKind) {
	n, id := s.node(t, a, "node"), a.number(t, "id", 0)
	m := oracle.Member{ID: id, PeerAddr: a["peer"], ClientAddr: a["client"], Promote: a.has("auto")}
	if kind == replica.AddLearner || kind == replica.ReplaceMember {
		m.PeerAddr = cmp.Or(a["peer"], fmt.Sprintf("peer%d:1", id))
	}
	if err := s.changeMember(n, kind, m); err != nil {
		s.printf("  %d: refused: %v", n.id, err)
	}
	s.report(n)
}

func (s *script) raiseFloor(t *testing.T, a args) {
	n := s.node(t, a, "node")
	in := &replica.Input{Mono: s.mono, Now: uint64(s.mono + n.skew), RaiseFloor: &replica.FloorRequest{
		Time: uint64(s.began + a.duration(t, "to")), Force: a.has("force"),
	}}
	e := n.Step(in)
	if e.FloorRefused != nil {
		s.printf("  %d: refused: %v", n.id, e.FloorRefused)
	}
	s.cluster.deliver(n, e)
	s.report(n)
}

func (s *script) status(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		if n.down {
			s.printf("%d: down", n.id)
			continue
		}
		st := n.Status()
		s.printf("%d: %s, applied=%d ceiling=%s", n.id, s.state(n), st.Applied, s.at(st.Ceiling))
		if st.Serving {
			s.printf("  time=%s waiting=%d", s.at(st.Time), st.Waiting)
		}
		if n.cfg.LeaseMillis > 0 {
			s.printf("  workers=%s releasing=%d", n.ids(), st.WorkersReleasing)
		}
		if n.cfg.ClockJumpMax > 0 {
			c := st.Clock
			s.printf("  clock known=%v offset=%s exceeded=%v", c.Known, signed(c.Offset), c.Exceeded)
		}
	}
}

func (s *script) log(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		s.printf("%d: %s", n.id, hardState(n.disk.hard))
		if n.disk.snap != nil {
			s.printf("  %s", s.snapshot(n.disk.snap))
		}
		for _, e := range n.disk.entries {
			s.printf("  %d/%d %s", e.GetTerm(), e.GetIndex(), s.command(e))
		}
	}
}

func (s *script) members(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		s.printf("%d: %d voters", n.id, n.Voters())
		for _, m := range n.Members() {
			part := "voter"
			if m.Learner {
				part = "learner"
			}
			if m.Promote {
				part += " to be promoted"
			}
			if m.Replaces != 0 {
				part += fmt.Sprintf(" in place of %d", m.Replaces)
			}
			s.printf("  %d %s, directory %d, start %d", m.ID, part, m.Incarnation, m.Boot)
		}
	}
}

func (s *script) workers(t *testing.T, a args) {
	n := s.node(t, a, "node")
	for _, l := range n.WorkerLeases() {
		who := "free"
		if l.Session != 0 {
			who = fmt.Sprintf("%s, session %d", holder(l.Node), l.Session)
		}
		s.printf("worker %d: %s, %s to %s", l.Worker, who, s.atMillis(l.Start), s.atMillis(l.End))
	}
}
