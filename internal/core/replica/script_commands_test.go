package replica_test

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// command is one command of scripts. Every command also takes quiet. A script begins with one
// that creates a cluster.
type command struct {
	args    string
	run     func(s *script, t *testing.T, a args)
	creates bool
}

// commands are all commands, by name; testdata/scripts/README.md says what they do.
var commands = map[string]command{
	"founders": {"nodes jump", (*script).founders, true},
	"cluster":  {"nodes leader jump snapshot-every workers", (*script).form, true},

	"join":    {"node", (*script).join, false},
	"found":   {"node peers", (*script).found, false},
	"crash":   {"node", (*script).stop, false},
	"backup":  {"node", (*script).backup, false},
	"restart": {"node backup level", (*script).restart, false},
	"wipe":    {"node", (*script).wiped, false},
	"connect": {"", (*script).connect, false},
	"hello":   {"from to", (*script).hello, false},
	"refused": {"node by", (*script).refused, false},

	"tick":  {"node count hold at-once", (*script).ticks, false},
	"wait":  {"for", (*script).wait, false},
	"clock": {"node offset", (*script).clock, false},

	"settle":      {"", func(s *script, _ *testing.T, _ args) { s.settleAll() }, false},
	"deliver":     {"from to type", (*script).deliver, false},
	"lose":        {"from to type", (*script).loseSome, false},
	"cut":         {"node", (*script).cut, false},
	"heal":        {"", (*script).heal, false},
	"lose-clocks": {"", (*script).loseAllClocks, false},
	"write":       {"node", (*script).writes, false},
	"stall":       {"node", func(s *script, t *testing.T, a args) { s.stall(t, a, true) }, false},
	"unstall":     {"node", func(s *script, t *testing.T, a args) { s.stall(t, a, false) }, false},

	"request":     {"node mode count floor index", (*script).request, false},
	"transfer":    {"node", (*script).transfer, false},
	"add-learner": {"node id auto peer", func(s *script, t *testing.T, a args) { s.propose(t, a, replica.AddLearner) }, false},
	"promote":     {"node id", func(s *script, t *testing.T, a args) { s.propose(t, a, replica.AddVoter) }, false},
	"remove":      {"node id", func(s *script, t *testing.T, a args) { s.propose(t, a, replica.Remove) }, false},
	"replace":     {"node id peer", func(s *script, t *testing.T, a args) { s.propose(t, a, replica.ReplaceMember) }, false},
	"update":      {"node id peer client", func(s *script, t *testing.T, a args) { s.propose(t, a, replica.UpdateMember) }, false},
	"floor":       {"node to force", (*script).raiseFloor, false},
	"lease":       {"node session worker ahead", (*script).leaseRequest, false},
	"release":     {"node session worker start next", (*script).releaseRequest, false},
	"give-back":   {"node", (*script).giveBack, false},
	"raise-level": {"node", (*script).raiseLevel, false},
	"spoil":       {"node", (*script).spoil, false},

	"status":  {"node", (*script).status, false},
	"log":     {"node", (*script).log, false},
	"members": {"node", (*script).members, false},
	"workers": {"node", (*script).workers, false},
	"levels":  {"node", (*script).levels, false},
}

func (s *script) founders(t *testing.T, a args) {
	s.adopt(unformed(t, int(a.number(t, "nodes", 3)), s.settings(t, a)))
	s.reportAll()
}

func (s *script) form(t *testing.T, a args) {
	s.adopt(unformed(t, int(a.number(t, "nodes", 3)), s.settings(t, a)))
	s.quiet = true
	s.greet()
	s.settle()
	for range 20 {
		s.pass(s.running())
	}
	if a.has("leader") {
		for range 5 {
			s.pass([]*node{s.node(t, a, "leader")})
		}
	}
	s.out.Reset()
	for _, n := range s.running() {
		s.printf("%d: %s", n.id, s.state(n))
	}
	if a.has("leader") && !s.node(t, a, "leader").Status().Serving {
		t.Fatal("it does not lead")
	}
}

// settings are what cluster and founders may set.
func (s *script) settings(t *testing.T, a args) func(*replica.Config) {
	return func(cfg *replica.Config) {
		if a.has("jump") {
			cfg.ClockJumpMax = a.duration(t, "jump")
		}
		cfg.SnapshotEvery = a.number(t, "snapshot-every", cfg.SnapshotEvery)
		if a.has("workers") {
			idNode(cfg)
			cfg.Workers = int(a.number(t, "workers", 0))
		}
	}
}

func (s *script) join(t *testing.T, a args) {
	n := s.add(a.number(t, "node", 0), nil, nil)
	s.report(n)
}

func (s *script) found(t *testing.T, a args) {
	var list []oracle.Member
	for _, id := range a.numbers(t, "peers") {
		list = append(list, oracle.Member{ID: id, PeerAddr: fmt.Sprintf("peer%d:1", id)})
	}
	s.report(s.add(a.number(t, "node", 0), list, nil))
}

func (s *script) stop(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		n.down, n.inbox, n.hellos, n.flying = true, nil, nil, nil
	}
}

func (s *script) backup(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		d := n.disk
		d.entries = slices.Clone(d.entries)
		s.backups[n.id] = d
	}
}

func (s *script) restart(t *testing.T, a args) {
	for _, n := range s.named(t, a) {
		if a.has("backup") {
			n.disk = s.backups[n.id]
		}
		n.cfg.Level = a.number(t, "level", n.cfg.Level)
		s.crash(n, false)
		s.report(n)
	}
}

func (s *script) wiped(t *testing.T, a args) {
	n := s.node(t, a, "node")
	s.wipe(n)
	s.report(n)
}

func (s *script) connect(t *testing.T, a args) {
	s.greet()
	s.reportAll()
	for _, n := range s.running() {
		for _, o := range s.running() {
			if n != o && !n.met[o.id] {
				s.admit(n, o)
			}
		}
	}
}

// admit shows whether n would admit o.
func (s *script) admit(n, o *node) bool {
	refusal := n.Admit(o.Hello())
	if refusal == nil {
		return true
	}
	s.printf("  %d: refuses %d: %s", n.id, o.id, refusal.Code)
	if o.Refused(n.id, refusal) != nil {
		s.printf("  %d: stops", o.id)
		o.down = true
	}
	return false
}

func (s *script) hello(t *testing.T, a args) {
	from, to := s.node(t, a, "from"), s.node(t, a, "to")
	if s.admit(to, from) {
		h := from.Hello()
		to.met[from.id] = true
		s.step(to, fmt.Sprintf("hello from %d (%s)", from.id, stages[h.Stage]), &replica.Input{Hellos: []replica.Hello{h}})
	}
}

// refused tells nodes that the address of another refuses connections.
func (s *script) refused(t *testing.T, a args) {
	by := a.number(t, "by", 0)
	for _, n := range s.named(t, a) {
		s.step(n, fmt.Sprintf("connection refused by %d", by), &replica.Input{Gone: []uint64{by}, Refused: []uint64{by}})
	}
}

func (s *script) ticks(t *testing.T, a args) {
	count := int(a.number(t, "count", 1))
	if a.has("at-once") {
		for _, n := range s.named(t, a) {
			s.step(n, fmt.Sprintf("tick, %d times", count), &replica.Input{Ticks: count})
		}
		return
	}
	for range count {
		if a.has("hold") {
			s.beat(s.named(t, a))
		} else {
			s.pass(s.named(t, a))
		}
	}
}

// beat lets one tick pass.
func (s *script) beat(nodes []*node) {
	s.mono += tick
	for _, n := range nodes {
		if !n.down {
			s.step(n, "tick", &replica.Input{Ticks: 1})
		}
	}
}

// pass lets one tick pass and delivers what comes of it.
func (s *script) pass(nodes []*node) {
	s.beat(nodes)
	s.settleAll()
}

func (s *script) wait(t *testing.T, a args) { s.mono += a.duration(t, "for") }

func (s *script) clock(t *testing.T, a args) {
	s.setClock(s.node(t, a, "node"), a.duration(t, "offset"))
}

// match is what deliver and lose go by.
func (s *script) match(t *testing.T, a args) func(m *raftpb.Message) bool {
	from, to := a.number(t, "from", 0), a.number(t, "to", 0)
	return func(m *raftpb.Message) bool {
		return (from == 0 || from == m.GetFrom()) && (to == 0 || to == m.GetTo()) && (!a.has("type") || a["type"] == m.GetType().String())
	}
}

func (s *script) deliver(t *testing.T, a args) {
	some := false
	for _, n := range s.running() {
		if to := a.number(t, "to", n.id); to == n.id {
			some = s.receive(n, s.match(t, a), false) || some
		}
	}
	if !some {
		t.Fatal("there is nothing to deliver")
	}
}

func (s *script) loseSome(t *testing.T, a args) {
	match, some := s.match(t, a), false
	for _, n := range s.running() {
		var rest []*raftpb.Message
		for _, m := range n.inbox {
			if !match(m) {
				rest = append(rest, m)
				continue
			}
			some = true
			s.printf("  lost: %d->%d %s", m.GetFrom(), m.GetTo(), s.message(m))
		}
		n.inbox = rest
	}
	if !some {
		t.Fatal("there is nothing to lose")
	}
}

func (s *script) cut(t *testing.T, a args) {
	s.isolate(a.numbers(t, "node")...)
	s.tap()
}

func (s *script) loseAllClocks(*testing.T, args) {
	s.loseClocks()
	s.tap()
}

func (s *script) heal(*testing.T, args) {
	s.isolate()
	s.tap()
}

func (s *script) writes(t *testing.T, a args) {
	n := s.node(t, a, "node")
	if n.flying == nil {
		t.Fatal("no write is under way")
	}
	s.receive(n, func(*raftpb.Message) bool { return false }, true)
}

func (s *script) stall(t *testing.T, a args, stalled bool) {
	for _, n := range s.named(t, a) {
		n.stalled = stalled
	}
}
