package oracle_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

// space has eight workers.
var space = oracle.Space{TimeBits: 48, DatacenterBits: 1, WorkerBits: 2, SequenceBits: 12}

// at returns a state at a time in milliseconds, whose members 1 to 3 run with the
// sessions 10, 20 and 30.
func at(ms uint64) *oracle.State {
	s := &oracle.State{}
	for id := range uint64(3) {
		s.AddMember(oracle.Member{ID: id + 1})
		boot(s, id+1, 1, 10*(id+1))
	}
	pass(s, ms)
	return s
}

// boot records that a member runs with a session.
func boot(s *oracle.State, id, boot, session uint64) {
	s.Apply(0, oracle.Command{Kind: oracle.KindRegister, Member: oracle.Member{ID: id, Incarnation: id, Boot: boot, Session: session}})
}

// pass raises the ceiling to a time in milliseconds.
func pass(s *oracle.State, ms uint64) {
	s.Apply(0, oracle.Command{Kind: oracle.KindReserve, Target: ms * 1e6})
}

// ask asks for workers from a time on, for a second.
func ask(s *oracle.State, node, session uint64, slots uint8, fixed int, from uint64) oracle.Outcome {
	return s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
		Space: space, Node: node, Session: session, Slots: slots, Fixed: fixed, From: from, Until: from + 1000,
	}})
}

// giveBack gives one lease back that was used before next.
func giveBack(s *oracle.State, l oracle.WorkerLease, next uint64) {
	s.Apply(0, oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{
		Node: l.Node, Session: l.Session, Used: []oracle.Used{{Worker: l.Worker, Start: l.Start, Next: next}},
	}})
}

// show writes leases as "worker[start,end)".
func show(list []oracle.WorkerLease) string {
	var text []string
	for _, l := range list {
		text = append(text, fmt.Sprintf("%d[%d,%d)", l.Worker, l.Start, l.End))
	}
	return fmt.Sprint(text)
}

func wantLeases(t *testing.T, o oracle.Outcome, want string) {
	t.Helper()
	if got := show(o.Leases); got != want || o.Refusal != nil {
		t.Errorf("leases %s, refusal %+v; want %s", got, o.Refusal, want)
	}
}

func wantRefusal(t *testing.T, o oracle.Outcome, reason oracle.LeaseReason, code isotone.Code) *oracle.LeaseRefusal {
	t.Helper()
	if o.Refusal == nil || o.Refusal.Reason != reason {
		t.Fatalf("leases %s, refusal %+v; want one with reason %d", show(o.Leases), o.Refusal, reason)
	}
	if err := o.Refusal.Err(); !errors.Is(err, &isotone.Error{Code: code}) {
		t.Errorf("the refusal is %v, want %v", err, code)
	}
	return o.Refusal
}

func TestWorkers_TheLowestFreeOneIsGranted(t *testing.T) {
	s := at(5000)
	wantLeases(t, ask(s, 1, 10, 2, oracle.AnyWorker, 5000), "[0[5000,6000) 1[5000,6000)]")
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 5100), "[2[5100,6100)]")
	wantLeases(t, ask(s, 0, 77, 1, oracle.AnyWorker, 5200), "[3[5200,6200)]")
	wantLeases(t, ask(s, 3, 30, 1, 5, 5200), "[5[5200,6200)]")
	wantLeases(t, ask(s, 0, 78, 3, oracle.AnyWorker, 5200), "[4[5200,6200) 6[5200,6200) 7[5200,6200)]")
	if !slices.IsSortedFunc(s.Workers, func(a, b oracle.WorkerLease) int { return int(a.Worker) - int(b.Worker) }) || len(s.Workers) != 8 {
		t.Errorf("the records are %s", show(s.Workers))
	}
}

func TestWorkers_TheHolderRenewsAndItsEndNeverSinks(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 2, oracle.AnyWorker, 5000)
	wantLeases(t, ask(s, 1, 10, 2, oracle.AnyWorker, 5500), "[0[5000,6500) 1[5000,6500)]")
	wantLeases(t, ask(s, 1, 10, 1, oracle.AnyWorker, 4000), "[0[5000,6500)]") // its clock went back
	wantLeases(t, ask(s, 1, 10, 2, oracle.AnyWorker, 9000), "[0[5000,10000) 1[5000,10000)]")
	wantLeases(t, ask(s, 1, 10, 3, oracle.AnyWorker, 9000), "[0[5000,10000) 1[5000,10000) 2[9000,10000)]")
}

func TestWorkers_AnEndedLeaseGoesToAnother(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, oracle.AnyWorker, 5000)
	pass(s, 6000)
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 5999), "[1[5999,6999)]")
	wantLeases(t, ask(s, 3, 30, 1, oracle.AnyWorker, 6000), "[0[6000,7000)]")
	wantLeases(t, ask(s, 1, 10, 1, oracle.AnyWorker, 6000), "[2[6000,7000)]") // it lost worker 0
}

func TestWorkers_AClockThatIsAheadTakesNothingFromOthers(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, oracle.AnyWorker, 5000)
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 5000+oracle.LeaseMax), fmt.Sprintf("[1[%d,%d)]", 5000+oracle.LeaseMax, 6000+oracle.LeaseMax))
	r := wantRefusal(t, ask(s, 3, 30, 1, oracle.AnyWorker, 5001+oracle.LeaseMax), oracle.LeaseClock, isotone.CodeClock)
	if r.Ahead != oracle.LeaseMax+1 {
		t.Errorf("ahead by %d", r.Ahead)
	}
	wantRefusal(t, ask(s, 1, 10, 1, oracle.AnyWorker, 5001+oracle.LeaseMax), oracle.LeaseClock, isotone.CodeClock)
	if l, _ := s.Worker(0); l.End != 6000 {
		t.Errorf("the refused renewal left %+v", l)
	}
}

func TestWorkers_TheNextProcessOfANodeInheritsNothing(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, oracle.AnyWorker, 5000)
	boot(s, 1, 2, 11)
	wantLeases(t, ask(s, 1, 11, 1, oracle.AnyWorker, 5001), "[1[5001,6001)]")
	wantRefusal(t, ask(s, 1, 10, 1, oracle.AnyWorker, 5002), oracle.LeaseSession, isotone.CodeOverloaded)
	wantRefusal(t, ask(s, 4, 40, 1, oracle.AnyWorker, 5002), oracle.LeaseSession, isotone.CodeOverloaded)
}

func TestWorkers_AFixedWorkerWaitsForTheEndWhoeverHeldIt(t *testing.T) {
	s := at(5000)
	wantLeases(t, ask(s, 1, 10, 1, 3, 5000), "[3[5000,6000)]")
	wantLeases(t, ask(s, 1, 10, 1, 3, 5100), "[3[5000,6100)]")
	r := wantRefusal(t, ask(s, 2, 20, 1, 3, 5100), oracle.LeaseHeld, isotone.CodeNoWorker)
	if want := "no_worker: worker 3 is held by node 1 until 1970-01-01T00:00:06.100Z"; r.Err().Error() != want {
		t.Errorf("%q, want %q", r.Err(), want)
	}
	boot(s, 1, 2, 11)
	pass(s, 9000)
	wantRefusal(t, ask(s, 1, 11, 1, 3, 6099), oracle.LeaseHeld, isotone.CodeNoWorker)
	wantLeases(t, ask(s, 1, 11, 1, 3, 6100), "[3[6100,7100)]")
	wantLeases(t, ask(s, 2, 20, 1, 3, 7100), "[3[7100,8100)]")
	wantRefusal(t, ask(s, 0, 77, 1, 3, 7200), oracle.LeaseHeld, isotone.CodeNoWorker)
}

func TestWorkers_AFixedWorkerIsKeptForItsNodeWhileThatIsAMember(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, 0, 5000)
	ask(s, 0, 77, 1, 1, 5000) // a client's is not
	pass(s, 9000)
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 9000), "[1[9000,10000)]")
	s.RemoveMember(1)
	wantLeases(t, ask(s, 3, 30, 1, oracle.AnyWorker, 9000), "[0[9000,10000)]")
}

func TestWorkers_WhatIsGivenBackBeginsAfterWhatWasUsed(t *testing.T) {
	s := at(5000)
	first := ask(s, 1, 10, 1, 0, 5000).Leases[0]
	giveBack(s, first, 5300)
	if l, _ := s.Worker(0); l != (oracle.WorkerLease{Worker: 0, Start: 5000, End: 5300}) {
		t.Fatalf("given back: %+v", l)
	}
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 5299), "[1[5299,6299)]") // worker 0 is still in use, says the clock
	wantLeases(t, ask(s, 3, 30, 1, 0, 5299), "[0[5300,6300)]")
	giveBack(s, oracle.WorkerLease{Worker: 0, Node: 1, Session: 10, Start: 5300}, 5301)
	if l, _ := s.Worker(0); l.Node != 3 || l.End != 6300 {
		t.Errorf("a stranger gave back: %+v", l)
	}
}

func TestWorkers_AReleaseThatArrivesLateOrTwiceChangesNothing(t *testing.T) {
	for _, used := range []uint64{4000, 5000, 5300, 9000} {
		s := at(5000)
		first := ask(s, 1, 10, 1, oracle.AnyWorker, 5000).Leases[0]
		giveBack(s, first, used)
		pass(s, 9000)
		second := ask(s, 1, 10, 1, 0, 5000).Leases[0]
		if second.Start <= first.Start {
			t.Fatalf("used %d: the grants %+v and %+v cannot be told apart", used, first, second)
		}
		before := s.Append(nil)
		giveBack(s, first, used)
		giveBack(s, first, 5000)
		if !slices.Equal(before, s.Append(nil)) {
			t.Errorf("used %d: the late release left %+v of %+v", used, s.Workers[0], second)
		}
	}
}

func TestWorkers_AClusterHasOneIDSpace(t *testing.T) {
	s := at(5000)
	other := space
	other.Epoch = 1
	q := oracle.LeaseRequest{Space: other, Node: 1, Session: 10, Slots: 1, Fixed: oracle.AnyWorker, From: 1 << 50, Until: 1<<50 + 1}
	s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q}) // is refused, and names no space
	ask(s, 1, 10, 1, oracle.AnyWorker, 5000)
	q.From, q.Until = 5000, 6000
	r := wantRefusal(t, s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q}), oracle.LeaseSpace, isotone.CodeInvalidArgument)
	if r.Space != space || s.Space != space {
		t.Errorf("the space is %+v, the refusal says %+v", s.Space, r.Space)
	}
}

func TestWorkers_NoneBeginsWhereTheTimeBitsEnd(t *testing.T) {
	q := oracle.LeaseRequest{
		Space: oracle.Space{TimeBits: 10, WorkerBits: 3, SequenceBits: 50, Epoch: 4000},
		Node:  1, Session: 10, Slots: 1, Fixed: oracle.AnyWorker, From: 5023, Until: 9000,
	}
	s := at(5000)
	o := s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q})
	wantLeases(t, o, "[0[5023,9000)]")
	giveBack(s, o.Leases[0], 5024)
	q.Fixed = 0 // would begin at 5024, the first millisecond that 10 bits cannot hold
	r := wantRefusal(t, s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q}), oracle.LeaseTimeOver, isotone.CodeClock)
	if r.Space != q.Space {
		t.Errorf("refused: %+v", r)
	}
	q.From, q.Fixed = 5024, oracle.AnyWorker
	wantRefusal(t, s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q}), oracle.LeaseTimeOver, isotone.CodeClock)
	q.Space.TimeBits, q.Space.SequenceBits, q.From, q.Until = 60, 0, 5024, 9000
	wantLeases(t, at(5000).Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q}), "[0[5024,9000)]")
}

func TestWorkers_NoneIsGrantedWhenAllAreHeld(t *testing.T) {
	s := at(5000)
	o := ask(s, 1, 10, 9, oracle.AnyWorker, 5000)
	if wantRefusal(t, o, oracle.LeaseNoneFree, isotone.CodeNoWorker); len(o.Leases) != 8 {
		t.Errorf("%s were granted of eight", show(o.Leases))
	}
	wantRefusal(t, ask(s, 2, 20, 1, oracle.AnyWorker, 5000), oracle.LeaseNoneFree, isotone.CodeNoWorker)
}

func TestWorkersLeased_CountsWhatAClientWouldNotGet(t *testing.T) {
	s := at(5000)
	want := func(now uint64, leased, limit int) {
		t.Helper()
		if l, n := s.WorkersLeased(now); l != leased || n != limit {
			t.Errorf("at %d: %d of %d are leased, want %d of %d", now, l, n, leased, limit)
		}
	}
	want(5000, 0, 0) // no layout yet
	ask(s, 1, 10, 2, oracle.AnyWorker, 5000)
	want(5000, 2, 8)
	ask(s, 2, 20, 1, 7, 5000)
	want(5000, 3, 8)
	pass(s, 7000)
	want(5999, 3, 8)
	want(6000, 1, 8) // the fixed one is kept for node 2
	s.RemoveMember(2)
	want(6000, 0, 8)
}

func TestWorkers_ABadRequestChangesNothing(t *testing.T) {
	good := oracle.LeaseRequest{Space: space, Node: 1, Session: 10, Slots: 1, Fixed: oracle.AnyWorker, From: 5000, Until: 6000}
	for name, spoil := range map[string]func(*oracle.LeaseRequest){
		"no bits":           func(q *oracle.LeaseRequest) { q.Space = oracle.Space{} },
		"62 bits":           func(q *oracle.LeaseRequest) { q.Space.TimeBits-- },
		"negative epoch":    func(q *oracle.LeaseRequest) { q.Space.Epoch = -1 },
		"no session":        func(q *oracle.LeaseRequest) { q.Session = 0 },
		"no slots":          func(q *oracle.LeaseRequest) { q.Slots = 0 },
		"65 slots":          func(q *oracle.LeaseRequest) { q.Slots = 65 },
		"a worker too high": func(q *oracle.LeaseRequest) { q.Fixed = 8 },
		"two of one worker": func(q *oracle.LeaseRequest) { q.Fixed, q.Slots = 1, 2 },
		"no time":           func(q *oracle.LeaseRequest) { q.Until = q.From },
		"negative time":     func(q *oracle.LeaseRequest) { q.Until = q.From - 1 },
		"too long":          func(q *oracle.LeaseRequest) { q.Until = q.From + oracle.LeaseMax + 1 },
		"beyond int64":      func(q *oracle.LeaseRequest) { q.From, q.Until = 1<<63-1, 1<<63 },
	} {
		t.Run(name, func(t *testing.T) {
			s, q := at(5000), good
			before := s.Append(nil)
			spoil(&q)
			wantRefusal(t, s.Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q}), oracle.LeaseMalformed, isotone.CodeInvalidArgument)
			if !slices.Equal(before, s.Append(nil)) {
				t.Error("the state changed")
			}
		})
	}
}

func TestWorkers_AtMost1024AreLeased(t *testing.T) {
	if n := (oracle.Space{TimeBits: 30, DatacenterBits: 16, WorkerBits: 16, SequenceBits: 1}).Workers(); n != 1024 {
		t.Errorf("%d workers", n)
	}
	if n := (oracle.Space{TimeBits: 41, DatacenterBits: 5, WorkerBits: 5, SequenceBits: 12}).Workers(); n != 1024 {
		t.Errorf("%d workers", n)
	}
}

// grant is what a holder knows of one lease in TestWorkers_NoMillisecondIsUsedTwice.
type grant struct {
	oracle.WorkerLease
	next uint64 // the first millisecond that it has not used
	over bool   // it uses no more
}

// TestWorkers_NoMillisecondIsUsedTwice lets processes with any clocks ask, use, give back
// and die, and commands arrive late and again. A new grant must begin after all that was
// ever used of its worker. Leases that were revoked do not grow.
func TestWorkers_NoMillisecondIsUsedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := at(1000)
		sessions := []uint64{10, 20, 30}
		used := map[uint16]uint64{}     // by worker: the first millisecond never used
		revoked := map[[2]uint64]bool{} // by worker and Start
		var grants []*grant
		var sent []oracle.Command
		apply := func(c oracle.Command) {
			for _, l := range s.Apply(0, c).Leases {
				i := slices.IndexFunc(grants, func(g *grant) bool { return g.Worker == l.Worker && g.Start == l.Start })
				if i >= 0 {
					if c.Kind == oracle.KindLease && revoked[[2]uint64{uint64(l.Worker), l.Start}] {
						t.Fatalf("the revoked grant %+v became %+v", grants[i].WorkerLease, l)
					}
					if g := grants[i]; g.Session != l.Session || l.End < g.End {
						t.Fatalf("I9: the grant %+v became %+v", g.WorkerLease, l)
					}
					grants[i].End = l.End
					continue
				}
				if l.Start < used[l.Worker] {
					t.Fatalf("I9: worker %d was used before %d and is granted from %d", l.Worker, used[l.Worker], l.Start)
				}
				grants = append(grants, &grant{WorkerLease: l, next: l.Start})
			}
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			node := rapid.IntRange(0, 2).Draw(t, "node")
			switch rapid.IntRange(0, 6).Draw(t, "op") {
			case 0:
				pass(s, rapid.Uint64Range(1000, 9000).Draw(t, "ceiling"))
			case 1:
				sessions[node]++
				boot(s, uint64(node+1), sessions[node], sessions[node])
			case 2:
				from := rapid.Uint64Range(0, 9000).Draw(t, "from")
				c := oracle.Command{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
					Space: space, Node: uint64(node + 1), Session: sessions[node], Slots: uint8(rapid.IntRange(1, 3).Draw(t, "slots")),
					Fixed: oracle.AnyWorker, From: from, Until: from + rapid.Uint64Range(1, 2000).Draw(t, "length"),
				}}
				if rapid.Bool().Draw(t, "fixed") {
					c.Lease.Slots, c.Lease.Fixed = 1, rapid.IntRange(0, 2).Draw(t, "worker")
				}
				sent = append(sent, c)
				apply(c)
			case 3: // an old command arrives again
				if len(sent) > 0 {
					apply(sent[rapid.IntRange(0, len(sent)-1).Draw(t, "again")])
				}
			case 4:
				if len(grants) > 0 {
					g := grants[rapid.IntRange(0, len(grants)-1).Draw(t, "revoked")]
					c := oracle.Command{Kind: oracle.KindRevoke, Revoke: oracle.Revocation{Worker: g.Worker, Start: g.Start}}
					sent = append(sent, c)
					apply(c)
					revoked[[2]uint64{uint64(g.Worker), g.Start}] = true
				}
			default: // use some of a lease, or give it back
				if len(grants) == 0 {
					continue
				}
				g := grants[rapid.IntRange(0, len(grants)-1).Draw(t, "grant")]
				if !g.over {
					g.next = max(g.next, rapid.Uint64Range(g.Start, g.End).Draw(t, "next"))
					used[g.Worker] = max(used[g.Worker], g.next)
				}
				if rapid.Bool().Draw(t, "back") {
					g.over = true
					c := oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{
						Node: g.Node, Session: g.Session, Used: []oracle.Used{{Worker: g.Worker, Start: g.Start, Next: g.next}},
					}}
					sent = append(sent, c)
					apply(c)
				}
			}
			if again, err := oracle.DecodeState(s.Append(nil)); err != nil || !reflect.DeepEqual(&again, s) {
				t.Fatalf("round trip: %v, %+v; want %+v", err, again, s)
			}
		}
	})
}
