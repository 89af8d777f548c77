package oracle_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
)

// TestState_AFullListOfFormerMembersTellsWhoWasReplaced by the members, and has no more records than ever (I12).
func TestState_AFullListOfFormerMembersTellsWhoWasReplaced(t *testing.T) {
	s := oracle.State{}
	for node := range uint64(oracle.RemovedMax) {
		s.Removed = append(s.Removed, 1000+node)
	}
	for _, id := range []uint64{1, 2, oracle.MemberID(2, 3), oracle.MemberID(1001, 1)} {
		s.AddMember(oracle.Member{ID: id, PeerAddr: "peer:1"})
	}
	for id, want := range map[uint64]struct{ can, is bool }{
		1:                        {false, false}, // no record, and no later generation
		9:                        {false, false}, // no member
		2:                        {true, true},   // a later generation is a member
		oracle.MemberID(2, 3):    {false, false},
		oracle.MemberID(1001, 1): {true, true}, // its node has a record
	} {
		if got := s.CanRemove(id); got != want.can {
			t.Errorf("member %#x can be removed: %v", id, got)
		}
		if s.IsRemoved(id) {
			t.Errorf("member %#x is removed already", id)
		}
		after := s
		after.Removed, after.Members = append([]uint64(nil), s.Removed...), append([]oracle.Member(nil), s.Members...)
		after.RemoveMember(id)
		if got := after.IsRemoved(id); got != want.is {
			t.Errorf("member %#x is removed: %v", id, got)
		}
		if _, err := oracle.DecodeState(after.Append(nil)); err != nil || len(after.Removed) != oracle.RemovedMax {
			t.Errorf("member %#x: %d former members, %v", id, len(after.Removed), err)
		}
	}
	for _, id := range []uint64{oracle.MemberID(2, 1), oracle.MemberID(2, 2)} {
		if !s.IsRemoved(id) {
			t.Errorf("member %#x is not removed, though a later generation is a member", id)
		}
	}
	if next, ok := s.NextMember(2); !ok || next != oracle.MemberID(2, 4) {
		t.Errorf("the next generation is %#x", next)
	}
}
