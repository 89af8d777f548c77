package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// admissionHarms is like changeHarms, for nodes that must not be let in. The sim switches on
// the other rules of admission.
var admissionHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.AdmitForeign:       stopsMemberOfAnotherCluster,
	mutant.AdmitFounder:       formsSecondCluster,
	mutant.AdmitOtherFounders: preparesInVain,
	mutant.AdmitTick:          leasesOnShortPromise,
	mutant.AdmitLayout:        fixesWrongSpace,
	mutant.AdmitStranger:      keepsEveryUnknown,
	mutant.AdmitCloned:        votesInTwoProcesses,
	mutant.AdmitStrangers:     keepsEveryStranger,
	mutant.AdmitNeedless:      admitsToBusyMember,
	mutant.StopUnknown:        stopsUnknownMember,
	mutant.ForgetReplaced:     keepsReplacedNode,
	mutant.RefuseSlowLearner:  stopsLearnerInOrder,
}

func TestAdmit_WhoIsRefusedDoesNoHarm(t *testing.T) { wantNoHarm(t, admissionHarms) }

// stopsLearnerInOrder: the hello of a new learner reaches node 2 after a reservation which says that the learner has the log,
// and before the leader has put its process on record.
func stopsLearnerInOrder(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	if err := c.change(l, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	four := c.add(4, nil, nil)
	slow := four.Hello()
	by := c.nodes[1+l.id%3]
	record := func() oracle.Member {
		list := by.Members()
		return list[slices.IndexFunc(list, func(m replica.Member) bool { return m.ID == 4 })].Member
	}
	for range 500 { // the leader never hears a hello, so it registers nothing
		if c.tick(1); record().Durable > 0 {
			break
		}
	}
	if m := record(); m.Durable == 0 || m.Incarnation != 0 || slow.LastIndex != 0 {
		t.Fatalf("%+v after the hello %+v", m, slow)
	}
	refusal := by.Admit(slow)
	return refusal != nil && four.Refused(by.id, refusal) != nil
}

// stopsMemberOfAnotherCluster: node 4 of another cluster is started in place of a new node 4. It
// takes the members, which have the IDs of its own, for wiped ones, and that stops them.
func stopsMemberOfAnotherCluster(t *testing.T) bool {
	other := newCluster(t, 4, func(cfg *replica.Config) { cfg.Self.Incarnation += 7000 })
	other.leader()
	c := newCluster(t, 3, nil)
	l := c.leader()
	if err := c.change(l, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	refusal := other.nodes[4].Admit(l.Hello())
	return refusal != nil && l.Refused(4, refusal) != nil
}

// formsSecondCluster: node 4 was added, and started with PEERS in place of JOIN.
func formsSecondCluster(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	if err := c.change(l, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	list := []oracle.Member{{ID: 4, PeerAddr: "peer4:1"}, {ID: 5, PeerAddr: "peer5:1"}}
	four, five := c.add(4, list, nil), c.add(5, list, nil)
	for _, by := range []*node{c.nodes[1], c.nodes[2], c.nodes[3]} {
		if refusal := by.Admit(four.Hello()); refusal != nil && four.Refused(by.id, refusal) != nil {
			return false
		}
	}
	for range 3 {
		c.hear(four, five)
		c.hear(five, four)
		c.settle()
	}
	s := four.Status()
	return s.Forming == "" && s.ClusterID != l.Status().ClusterID
}

// preparesInVain: nodes with different lists prepare clusters that none of them can form. Their
// directories are of no more use.
func preparesInVain(t *testing.T) bool {
	c := unformed(t, 3, nil)
	c.fatal = func(*node, error) {}
	c.add(2, members(4), nil)
	c.add(4, members(4), nil)
	c.greet()
	c.settle()
	c.tick(50)
	prepared := false
	for _, n := range c.nodes {
		prepared = prepared || n.disk.snap != nil
		if n.Status().Forming == "" {
			t.Fatalf("node %d has formed a cluster", n.id)
		}
	}
	return prepared
}

// leasesOnShortPromise: the ticks of a voter are ten times shorter than those of the leader. It
// votes for another one while the leader still answers by lease (I5).
func leasesOnShortPromise(t *testing.T) bool {
	c, l := leased(t)
	fast, other := c.followers(l)[0], c.followers(l)[1]
	fast.cfg.TickInterval = tick / 10
	c.crash(fast, true)
	if l.Admit(fast.Hello()) != nil {
		return false
	}
	c.greet()
	c.tick(50)
	c.askMode(l, isotone.ReadLease, 1)
	c.tick(1)
	c.isolate(l.id)
	term := l.Status().Term
	c.turn(fast, &replica.Input{Ticks: 20})
	c.mono += 20 * fast.cfg.TickInterval
	voted := voteFor(c, fast, other.id, term+1)
	return voted && l.outcome(c.askMode(l, isotone.ReadLease, 1)) == "ok"
}

// fixesWrongSpace: one of three founders has another layout of IDs. It leases first, and the others are refused for ever.
func fixesWrongSpace(t *testing.T) bool {
	c := unformed(t, 3, func(cfg *replica.Config) {
		if idNode(cfg); cfg.Self.NodeID == 1 {
			cfg.Space.Epoch++
		}
		cfg.Workers = 1
	})
	refused := false
	for range 200 {
		c.greet()
		c.tick(1)
		for _, n := range c.running() {
			r := n.Status().WorkersRefused
			refused = refused || r != nil && r.Reason == oracle.LeaseSpace
		}
	}
	return refused
}

// votesInTwoProcesses: a machine is copied while it is off, and both copies are started. Each
// reaches another member, and both vote in one term.
func votesInTwoProcesses(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	one, by := c.followers(l)[0], c.followers(l)[1]
	one.down = true
	two := &node{id: one.id, cfg: one.cfg, disk: one.disk}
	two.disk.entries = slices.Clone(two.disk.entries)
	c.start(one)
	c.start(two)
	if refusal := c.hear(l, one); refusal != nil {
		t.Fatal(refusal)
	}
	c.settle() // the session of the first one is on record
	h := two.Hello()
	h.Session = 4242
	if by.Admit(h) != nil {
		return false
	}
	const term = 99
	for _, n := range []*node{one, two} {
		c.turn(n, &replica.Input{Ticks: 20})
	}
	return voteFor(c, one, l.id, term) && voteFor(c, two, by.id, term)
}

// keepsEveryStranger: whoever makes up IDs of nodes that are ahead fills the memory of a member without a leader.
func keepsEveryStranger(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	n := c.followers(c.leader())[0]
	c.tick(20)
	c.isolate(n.id)
	for n.Status().Leader != 0 {
		c.tick(1)
	}
	admitted, again := admittedOf(n, strangersTried, 1_000_000), admittedOf(n, 1, 1_000_000)
	if admitted == 0 || again == 0 {
		t.Errorf("%d nodes that may be newer are admitted, then %d", admitted, again)
	}
	kept := 0
	for _, p := range n.PeerAddrs(func(uint64) string { return "" }) {
		if p.ID >= firstStranger {
			kept++
		}
	}
	return kept == strangersTried
}

// keepsEveryUnknown: the same, of nodes that are not ahead.
func keepsEveryUnknown(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	return admittedOf(l, strangersTried, 0) == strangersTried
}

// admitsToBusyMember: nodes of a cluster that works take the word of one that nobody has added.
func admitsToBusyMember(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	c.leader()
	c.tick(20)
	admitted := 0
	for _, n := range c.running() {
		admitted += admittedOf(n, 1, 1_000_000)
	}
	return admitted == len(c.nodes)
}

const (
	firstStranger  = 100
	strangersTried = 1000
)

// admittedOf returns how many of some nodes that nobody knows, whose logs end at index, n admits.
func admittedOf(n *node, count, index uint64) (admitted int) {
	for id := range count {
		h := n.Hello()
		h.NodeID, h.LastIndex = firstStranger+id, index
		if n.Admit(h) == nil {
			admitted++
		}
	}
	return admitted
}

// stopsUnknownMember: a founder was down since it was prepared, and meets a node that is about to join.
func stopsUnknownMember(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	late := c.nodes[1]
	late.down = true
	if err := c.change(c.leader(), replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	added := c.add(4, nil, nil)
	if c.start(late); late.Status().Forming == "" {
		t.Fatal("it was formed")
	}
	refusal := late.Admit(added.Hello())
	return refusal != nil && added.Refused(late.id, refusal) != nil
}

// A process whose hello came while the leader could propose nothing is on record before what it has on disk is: otherwise who gets its hello late would
// take it for an older copy.
func TestReserve_RecordsProcessesBeforeWhatTheyHave(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(23) // so that the transfer is given up between two epochs
	others := c.followers(l)
	back := others[0]
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgTimeoutNow }
	c.turn(l, &replica.Input{Transfer: true, TransferTo: others[1].id})
	c.start(back)
	had := back.Hello().LastIndex
	c.greet()
	for range 100 {
		c.tick(1)
		c.turn(l, &replica.Input{Reserve: true})
		c.settle()
		for _, n := range c.running() {
			m, _ := oracleMember(n, back.id)
			if m.Session != back.Hello().Session && m.Durable > had {
				t.Fatalf("node %d has on record that node %d has index %d, which started with %d, but not that process", n.id, back.id, m.Durable, had)
			}
		}
	}
	if m, _ := oracleMember(l, back.id); m.Durable <= had || m.Session != back.Hello().Session {
		t.Errorf("%+v is on record; the process started with %d", m, had)
	}
}

// oracleMember returns what the state of a node has on record of a member.
func oracleMember(n *node, id uint64) (oracle.Member, bool) {
	s, err := oracle.DecodeState(n.Backup().State)
	if err != nil {
		return oracle.Member{}, false
	}
	return s.Member(id)
}
