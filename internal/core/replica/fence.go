package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// noteFences notes what is received: a snapshot, and entries that replace the log from the first of them on. The fence is at or above the index of
// each entry that the log has, and of which the owner of a timeline has to know before it may answer: commands for which
// [timeline.Command.Fences], and changes of membership. What is below a snapshot is not known, so that counts as one. Entries that are cut off
// were not committed, and the log may not reach their indexes for long.
//
// The fence of a voter speaks of its log as received: applied or not, committed or not, on disk or not. What of that a crash takes
// was never acknowledged, and a fence that is too high costs an owner time only.
func (t *tail) noteFences(s *raftpb.Snapshot, entries []*raftpb.Entry) {
	if s != nil && !mutant.On(mutant.CompactedIsClean) {
		t.fence = max(t.fence, s.GetMetadata().GetIndex())
	}
	if len(entries) > 0 {
		t.fence = min(t.fence, entries[0].GetIndex()-1)
	}
	for _, e := range entries {
		if isFence(e) {
			t.fence = max(t.fence, e.GetIndex())
		}
	}
}

func isFence(e *raftpb.Entry) bool {
	if e.GetType() != raftpb.EntryNormal {
		return !mutant.On(mutant.NoConfigFence)
	}
	return oracle.Fences(e.GetData())
}

// told is the fence that a voter tells.
func (t *tail) told() uint64 {
	return mutant.Pick(mutant.FenceByApplied, min(t.fence, t.applied), t.fence)
}
