package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// disk is one node's storage: what is durable, and what is on its way there.
type disk struct {
	durable diskState
	// flying is the write that is under way, nil if there is none; a crash may lose it.
	flying *replica.Write
	// writing is set while its end is scheduled.
	writing bool
	mode    diskMode
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

// reserved is the largest ceiling that an entry of the log asks for.
func (d diskState) reserved() uint64 {
	var most uint64
	for _, e := range d.entries {
		if c, err := oracle.DecodeCommand(e.GetData()); err == nil && c.Kind == oracle.KindReserve {
			most = max(most, c.Target)
		}
	}
	return most
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

// write takes a write of a running node.
func (w *world) write(n *node, write *replica.Write) {
	if n.disk.flying != nil {
		w.fail("I7: node %d gives out a write while another is under way", n.id)
		return
	}
	n.disk.flying = write
	w.sync(n)
}

// sync starts to write, if the disk moves.
func (w *world) sync(n *node) {
	d := &n.disk
	if d.writing || d.flying == nil || d.mode == diskStalled {
		return
	}
	d.writing = true
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
	if d.mode == diskFailing && !mutant.On(mutant.IgnoreFailedSync) {
		// I8: the node stops. Nobody knows what of the write is on the disk.
		w.trace("node %d: its disk failed", n.id)
		w.crash(n)
		return
	}
	done := d.flying
	d.flying, d.writing = nil, false
	if d.mode != diskFailing {
		w.persist(n, done)
	}
	n.in.persisted = done
	w.wake(n)
}

func (w *world) persist(n *node, write *replica.Write) {
	n.disk.durable = n.disk.durable.save(write)
	d := &n.disk
	if len(d.copies) == 0 || w.now-d.copies[len(d.copies)-1].taken > 2*time.Second {
		d.copies = append(d.copies, diskCopy{w.now, d.durable})
		if len(d.copies) > copiesMax {
			d.copies = slices.Delete(d.copies, 0, 1)
		}
	}
}

// lose is what a crash does to a disk: what was being written may or may not have
// arrived, all of it or nothing.
func (w *world) lose(n *node) {
	if n.disk.flying != nil && w.chance(0.5) {
		w.persist(n, n.disk.flying)
	}
	n.disk.flying, n.disk.writing = nil, false
}
