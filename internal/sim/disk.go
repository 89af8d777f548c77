package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/mutant"
	"github.com/isotone/isotone/internal/replica"
)

// disk is one node's storage: what is durable, and what is on its way there.
type disk struct {
	durable diskState
	queue   []*replica.Write
	// flying is the batch that is being written; some of it may survive a crash.
	flying []*replica.Write
	mode   diskMode
	// copies are older states, for the fault that brings one back.
	copies []diskCopy
}

type diskMode uint8

const (
	diskNormal diskMode = iota
	diskSlow
	diskStalled
	diskFailing
)

// diskCopy is a backup of a disk.
type diskCopy struct {
	taken time.Duration
	state diskState
}

// copiesMax bounds how many backups are kept.
const copiesMax = 4

// diskState is what survives a crash. It is a value: saving builds a new one and
// leaves copies as they are.
type diskState struct {
	hard        *raftpb.HardState
	snapshot    *raftpb.Snapshot
	entries     []*raftpb.Entry
	cluster     uint64
	incarnation uint64
	boot        uint64
}

// lastIndex is the last index of the log.
func (d diskState) lastIndex() uint64 {
	if n := len(d.entries); n > 0 {
		return d.entries[n-1].GetIndex()
	}
	return d.snapshot.GetMetadata().GetIndex()
}

func (d diskState) save(w *replica.Write) diskState {
	if w.Snapshot != nil {
		d.snapshot, d.entries = w.Snapshot, nil
		if d.hard.GetCommit() < w.Snapshot.GetMetadata().GetIndex() {
			d.hard = &raftpb.HardState{Term: new(max(d.hard.GetTerm(), w.Snapshot.GetMetadata().GetTerm())), Vote: new(d.hard.GetVote()), Commit: new(w.Snapshot.GetMetadata().GetIndex())}
		}
	}
	if len(w.Entries) > 0 {
		keep := len(d.entries)
		for keep > 0 && d.entries[keep-1].GetIndex() >= w.Entries[0].GetIndex() {
			keep--
		}
		d.entries = append(slices.Clip(d.entries[:keep]), w.Entries...)
	}
	if w.HardState != nil {
		d.hard = w.HardState
	}
	if w.Compact != nil {
		d.snapshot = w.Compact
		at := w.Compact.GetMetadata().GetIndex()
		drop := 0
		for drop < len(d.entries) && d.entries[drop].GetIndex() <= at {
			drop++
		}
		d.entries = slices.Clone(d.entries[drop:])
	}
	if w.ClusterID != 0 {
		d.cluster = w.ClusterID
	}
	return d
}

// write queues writes of a running node.
func (w *world) write(n *node, ws []*replica.Write) {
	n.disk.queue = append(n.disk.queue, ws...)
	w.sync(n)
}

// sync starts to write what is queued, if the disk is free.
func (w *world) sync(n *node) {
	d := &n.disk
	if len(d.flying) > 0 || len(d.queue) == 0 || d.mode == diskStalled {
		return
	}
	d.flying, d.queue = d.queue, nil
	delay := w.between(100*time.Microsecond, 3*time.Millisecond)
	if d.mode == diskSlow {
		delay = w.between(20*time.Millisecond, 800*time.Millisecond)
	}
	session := n.session
	w.after(delay, func() {
		if n.session == session {
			w.synced(n)
		}
	})
}

// synced ends a write: it is durable, or the disk failed.
func (w *world) synced(n *node) {
	d := &n.disk
	if d.mode == diskStalled {
		session := n.session
		w.after(10*time.Millisecond, func() {
			if n.session == session {
				w.synced(n)
			}
		})
		return
	}
	if d.mode == diskFailing && mutant.On(mutant.IgnoreFailedSync) {
		n.in.persisted = append(n.in.persisted, d.flying...)
		d.flying = nil
		w.wake(n)
		w.sync(n)
		return
	}
	if d.mode == diskFailing {
		// I8: the node stops. Nobody knows what of the write is on the disk.
		w.trace("node %d: its disk failed", n.id)
		w.crash(n)
		return
	}
	done := d.flying
	d.flying = nil
	w.persist(n, done)
	n.in.persisted = append(n.in.persisted, done...)
	w.wake(n)
	w.sync(n)
}

func (w *world) persist(n *node, ws []*replica.Write) {
	for _, write := range ws {
		n.disk.durable = n.disk.durable.save(write)
	}
	d := &n.disk
	if len(d.copies) == 0 || w.now-d.copies[len(d.copies)-1].taken > 2*time.Second {
		d.copies = append(d.copies, diskCopy{w.now, d.durable})
		if len(d.copies) > copiesMax {
			d.copies = slices.Delete(d.copies, 0, 1)
		}
	}
}

// lose is what a crash does to a disk: what was being written may or may not have
// arrived, the rest is gone.
func (w *world) lose(n *node) {
	if len(n.disk.flying) > 0 {
		w.persist(n, n.disk.flying[:w.rng.IntN(len(n.disk.flying)+1)])
	}
	n.disk.flying, n.disk.queue = nil, nil
}
