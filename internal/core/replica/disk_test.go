package replica_test

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
)

// disk is what survives a restart.
type disk struct {
	hard    *raftpb.HardState
	snap    *raftpb.Snapshot
	entries []*raftpb.Entry
	cluster uint64
	boot    uint64
	had     map[uint64]uint64 // the largest end of the log, by the term on disk
}

func (d *disk) save(w *replica.Write) {
	if w.Snapshot != nil {
		d.snap, d.entries = w.Snapshot, nil
	}
	if len(w.Entries) > 0 {
		first := w.Entries[0].GetIndex()
		keep := slices.IndexFunc(d.entries, func(e *raftpb.Entry) bool { return e.GetIndex() >= first })
		if keep >= 0 {
			d.entries = d.entries[:keep:keep]
		}
		d.entries = append(d.entries, w.Entries...)
	}
	if w.HardState != nil {
		d.hard = w.HardState
	}
	if w.Compact != nil {
		d.snap = w.Compact
		d.entries = slices.DeleteFunc(slices.Clone(d.entries), func(e *raftpb.Entry) bool {
			return e.GetIndex() <= w.Compact.GetMetadata().GetIndex()
		})
	}
	if w.ClusterID != 0 {
		d.cluster = w.ClusterID
	}
	if d.had == nil {
		d.had = map[uint64]uint64{}
	}
	last, _ := d.last()
	d.had[d.hard.GetTerm()] = max(d.had[d.hard.GetTerm()], last)
}

// last returns the end of the log, and its term.
func (d *disk) last() (index, term uint64) {
	index, term = d.snap.GetMetadata().GetIndex(), d.snap.GetMetadata().GetTerm()
	if n := len(d.entries); n > 0 && d.entries[n-1].GetIndex() > index {
		index, term = d.entries[n-1].GetIndex(), d.entries[n-1].GetTerm()
	}
	return index, term
}
