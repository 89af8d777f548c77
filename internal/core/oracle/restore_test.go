package oracle_test

import (
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

func TestWorkers_ClientsGetNoneOfTheMembersShare(t *testing.T) {
	s := at(5000) // eight workers: 0 and 1 are for members
	wantLeases(t, ask(s, 0, 77, 1, oracle.AnyWorker, 5500), "[2[5500,6500)]")
	wantLeases(t, ask(s, 0, 77, 1, oracle.AnyWorker, 5700), "[2[5500,6700)]")
	wantRefusal(t, ask(s, 0, 78, 1, 1, 5500), oracle.LeaseShare, isotone.CodeInvalidArgument)
	wantRefusal(t, ask(s, 0, 79, 1, 0, 9000), oracle.LeaseShare, isotone.CodeInvalidArgument)
	pass(s, 7000)
	wantLeases(t, ask(s, 1, 10, 3, oracle.AnyWorker, 7000), "[0[7000,8000) 1[7000,8000) 2[7000,8000)]") // members get any
	small := oracle.Space{TimeBits: 50, WorkerBits: 1, SequenceBits: 12}
	q := oracle.LeaseRequest{Space: small, Session: 5, Slots: 1, Fixed: oracle.AnyWorker, From: 7000, Until: 8000}
	o := at(7000).Apply(0, oracle.Command{Kind: oracle.KindLease, Lease: q})
	wantLeases(t, o, "[0[7000,8000)]") // with fewer than four there is no share
}

func TestRestored_ContinuesAboveTheFloor(t *testing.T) {
	from := at(5000)
	for _, c := range []struct{ floor, want uint64 }{{9000e6, 9000e6}, {1, 5000e6}} {
		s := oracle.Restored(*from, c.floor)
		if s.Ceiling != c.want || s.ClusterID != 0 || len(s.Members) != 0 || len(s.Removed) != 0 {
			t.Errorf("with the floor %d: %+v", c.floor, s)
		}
	}
}

// restored gives the state a member, as the formation does, at a time in milliseconds.
func restored(from *oracle.State, floor, now uint64) *oracle.State {
	s := oracle.Restored(*from, floor*1e6)
	s.AddMember(oracle.Member{ID: 1})
	boot(&s, 1, 1, 10)
	pass(&s, now)
	return &s
}

func TestRestored_WorkersAreFreeWhenNobodyCanHoldThemAnyMore(t *testing.T) {
	const floor, members, clients = 1_000_000, 1_011_001, 1_000_001 + 2*oracle.LeaseMax
	from := at(floor - 1)
	ask(from, 1, 10, 1, oracle.AnyWorker, floor-100)
	late := ask(from, 0, 77, 1, oracle.AnyWorker, floor).Leases[0]

	s := restored(from, floor, members-1)
	r := wantRefusal(t, ask(s, 1, 10, 1, oracle.AnyWorker, members-1), oracle.LeaseFenced, isotone.CodeNoWorker)
	if r.Until != members {
		t.Errorf("a member is told to wait until %d, want %d", r.Until, members)
	}
	wantRefusal(t, ask(s, 0, 77, 1, oracle.AnyWorker, members-1), oracle.LeaseFenced, isotone.CodeNoWorker)
	pass(s, clients-1)
	wantLeases(t, ask(s, 1, 10, 1, oracle.AnyWorker, members), "[0[1011001,1012001)]")
	r = wantRefusal(t, ask(s, 0, 77, 1, oracle.AnyWorker, clients-1), oracle.LeaseFenced, isotone.CodeNoWorker)
	if r.Until != clients {
		t.Errorf("a client is told to wait until %d, want %d", r.Until, clients)
	}
	wantRefusal(t, ask(s, 1, 10, 1, int(late.Worker), clients-1), oracle.LeaseFenced, isotone.CodeNoWorker)
	pass(s, clients)
	if l := ask(s, 0, 77, 1, oracle.AnyWorker, clients).Leases; len(l) != 1 || l[0].Worker != 2 || l[0].Start != clients {
		t.Errorf("after the fence a client gets %+v", l)
	}
}

func TestRestored_TwiceTheFirstFenceStillHolds(t *testing.T) {
	const floor, clients = 1_000_000, 1_000_001 + 2*oracle.LeaseMax
	s := restored(at(floor-1), floor, clients-1)
	again := oracle.Restored(*s, (floor+30_000)*1e6)
	if again.Fence.Members < floor+11_001 || again.Fence.Clients < clients {
		t.Errorf("restored twice, the fence is %+v, want %d at least for clients", again.Fence, clients)
	}
}

// TestRestored_LimitsOfTheLostClusterAreWaitedFor: processes may still read its cluster clock.
func TestRestored_LimitsOfTheLostClusterAreWaitedFor(t *testing.T) {
	lost := oracle.State{Ceiling: 5000, Interval: 70}
	if got := oracle.Restored(lost, 9000).Interval; got != 70 {
		t.Errorf("limits of %d ns, want 70", got)
	}
}
