package oracle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

func revoke(s *oracle.State, worker uint16, start uint64) oracle.Outcome {
	return s.Apply(0, oracle.Command{Kind: oracle.KindRevoke, Revoke: oracle.Revocation{Worker: worker, Start: start}})
}

func TestRevoke_TheLeaseKeepsItsEndAndIsNotRenewed(t *testing.T) {
	s := at(5000)
	wantLeases(t, ask(s, 0, 77, 1, oracle.AnyWorker, 5000), "[2[5000,6000)]")
	wantLeases(t, revoke(s, 2, 5000), "[2[5000,6000)]")
	wantLeases(t, revoke(s, 2, 5000), "[2[5000,6000)]") // again
	if l, _ := s.Worker(2); !l.Revoked || l.End != 6000 {
		t.Errorf("revoked: %+v", l)
	}
	r := wantRefusal(t, ask(s, 0, 77, 1, oracle.AnyWorker, 5500), oracle.LeaseRevoked, isotone.CodeNoWorker)
	if got := r.Err().Error(); !strings.Contains(got, "worker 2 was revoked by an operator") || !strings.Contains(got, "ends at 1970-01-01T00:00:06.000Z") {
		t.Errorf("the holder is told %q", got)
	}
	if l, _ := s.Worker(2); l.End != 6000 {
		t.Errorf("the refused renewal left %+v", l)
	}
	wantLeases(t, ask(s, 0, 78, 1, oracle.AnyWorker, 5500), "[3[5500,6500)]") // another session
}

func TestRevoke_TheWorkerIsFreeFromTheEndOn(t *testing.T) {
	s := at(5000)
	ask(s, 0, 77, 1, oracle.AnyWorker, 5000)
	revoke(s, 2, 5000)
	pass(s, 7000)
	wantLeases(t, ask(s, 0, 78, 1, oracle.AnyWorker, 5999), "[3[5999,6999)]")
	wantLeases(t, ask(s, 0, 79, 1, oracle.AnyWorker, 6000), "[2[6000,7000)]")
	wantLeases(t, ask(s, 0, 77, 1, oracle.AnyWorker, 6000), "[4[6000,7000)]") // nothing holds it back any more
	if l, _ := s.Worker(2); l.Revoked {
		t.Errorf("the next grant is revoked: %+v", l)
	}
}

func TestRevoke_AMemberGetsAnotherWorkerAtOnce(t *testing.T) {
	s := at(5000)
	wantLeases(t, ask(s, 1, 10, 2, oracle.AnyWorker, 5000), "[0[5000,6000) 1[5000,6000)]")
	revoke(s, 0, 5000)
	wantLeases(t, ask(s, 1, 10, 2, oracle.AnyWorker, 5500), "[2[5500,6500) 1[5000,6500)]")
	wantLeases(t, ask(s, 1, 10, 2, oracle.AnyWorker, 5600), "[2[5500,6600) 1[5000,6600)]")
	if l, _ := s.Worker(0); l.End != 6000 || !l.Revoked {
		t.Errorf("worker 0: %+v", l)
	}
}

func TestRevoke_AFixedWorkerIsKeptForNobody(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, 0, 5000)
	revoke(s, 0, 5000)
	wantRefusal(t, ask(s, 1, 10, 1, 0, 5500), oracle.LeaseRevoked, isotone.CodeNoWorker)
	pass(s, 9000)
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 6000), "[0[6000,7000)]")
	s = at(5000)
	ask(s, 1, 10, 1, 0, 5000)
	revoke(s, 0, 5000)
	pass(s, 9000)
	wantLeases(t, ask(s, 1, 10, 1, 0, 6000), "[0[6000,7000)]") // it was first
}

func TestRevoke_NamesOneGrant(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, oracle.AnyWorker, 5000)
	pass(s, 9000)
	ask(s, 2, 20, 1, oracle.AnyWorker, 6000)
	before := s.Append(nil)
	for _, v := range []oracle.Revocation{{Worker: 0, Start: 5000}, {Worker: 0}, {Worker: 7, Start: 6000}, {Worker: 65535, Start: 6000}} {
		wantRefusal(t, revoke(s, v.Worker, v.Start), oracle.LeaseNotHeld, isotone.CodeNotFound)
	}
	giveBack(s, oracle.WorkerLease{Worker: 0, Node: 2, Session: 20, Start: 6000}, 6001)
	wantRefusal(t, revoke(s, 0, 6000), oracle.LeaseNotHeld, isotone.CodeNotFound)
	wantLeases(t, ask(s, 2, 20, 1, oracle.AnyWorker, 6001), "[0[6001,7001)]")
	if slices.Equal(before, s.Append(nil)) {
		t.Error("the last lease changed nothing")
	}
}

func TestRevoke_AReleaseOfARevokedLeaseFreesItsWorker(t *testing.T) {
	s := at(5000)
	l := ask(s, 0, 77, 1, oracle.AnyWorker, 5000).Leases[0]
	revoke(s, 2, 5000)
	giveBack(s, l, 5300)
	if l, _ := s.Worker(2); l != (oracle.WorkerLease{Worker: 2, Start: 5000, End: 5300}) {
		t.Fatalf("given back: %+v", l)
	}
	wantLeases(t, ask(s, 0, 77, 1, oracle.AnyWorker, 5300), "[3[5300,6300)]") // the ceiling is at 5000
	pass(s, 6000)
	wantLeases(t, ask(s, 0, 78, 1, oracle.AnyWorker, 5300), "[2[5300,6300)]")
}

func TestRevoke_IsPartOfTheState(t *testing.T) {
	s := at(5000)
	ask(s, 1, 10, 1, 0, 5000)
	digest := s.Digest()
	revoke(s, 0, 5000)
	if s.Digest() == digest {
		t.Error("the digest does not show the revocation")
	}
	again, err := oracle.DecodeState(s.Append(nil))
	if l, _ := again.Worker(0); err != nil || !l.Revoked || !l.Fixed {
		t.Errorf("decoded: %v, %+v", err, l)
	}
}
