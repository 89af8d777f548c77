package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/journal"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// disk is the storage of one node. Its content is known as values; it is also in the files of a journal
// as production writes them, and has to be the same there (journal.go).
type disk struct {
	durable diskState
	journal *journal.Journal // that of the running process
	tried   bool             // inFlight was tried already
	cut     bool             // the process dies in its next write
	// acknowledged is what was durable at the last crash, unsure the write that was in flight, if a power
	// cut may still lose it. rotten names the part of the journal that has rotted, if any has.
	acknowledged diskState
	unsure       *replica.Write
	rotten       string
	// inFlight is the write in progress, nil if there is none; a crash may lose it.
	inFlight *replica.Write
	// writing is set while the end of inFlight is scheduled.
	writing bool
	mode    diskMode
	// copies are older states, for OldCopy.
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

// copiesMax bounds the backups of a disk.
const copiesMax = 4

// diskState is what survives a crash. It is a value: save returns a new one and leaves copies
// as they are.
type diskState struct {
	hard        *raftpb.HardState
	snapshot    *raftpb.Snapshot
	entries     []*raftpb.Entry
	cluster     uint64
	incarnation uint64
	boot        uint64
	// written is what the clock of the machine showed at the last write but for starts, in unix nanoseconds.
	written uint64
	// directory has the journal, nil before the first start. It does change; see clone.
	directory *directory
}

// clone returns a state that shares no files with d.
func (d diskState) clone() diskState {
	d.directory = d.directory.clone()
	return d
}

// lastIndex is the last index of the log.
func (d diskState) lastIndex() uint64 {
	if n := len(d.entries); n > 0 {
		return d.entries[n-1].GetIndex()
	}
	return d.snapshot.GetMetadata().GetIndex()
}

// reserved returns the largest target of the reservations in the log.
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

// write starts a write of a running node.
func (w *world) write(n *node, write *replica.Write) {
	if n.disk.inFlight != nil {
		w.fail("I7: node %d gives out a write while another is under way", n.id)
		return
	}
	n.disk.inFlight, n.disk.tried = write, false
	w.sync(n)
}

// sync schedules the end of the write in flight, unless the disk hangs.
func (w *world) sync(n *node) {
	d := &n.disk
	if d.writing || d.inFlight == nil || d.mode == diskStalled {
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
	if w.cutWrite(n) {
		return
	}
	err := w.save(n, 0)
	if err != nil && !mutant.On(mutant.IgnoreFailedSync) {
		// I8: the node stops. How much of the write is on disk is unknown.
		w.trace("node %d: its disk failed: %v", n.id, err)
		if d.mode != diskFailing {
			w.fail("node %d cannot write: %w", n.id, err)
		}
		w.crash(n)
		return
	}
	done := d.inFlight
	d.inFlight, d.writing = nil, false
	if err == nil {
		w.persist(n, done)
	}
	n.in.persisted = done
	w.wake(n)
}

func (w *world) persist(n *node, write *replica.Write) {
	n.disk.durable = n.disk.durable.save(write)
	w.stamp(n)
	d := &n.disk
	if len(d.copies) == 0 || w.now-d.copies[len(d.copies)-1].taken > 2*time.Second {
		d.copies = append(d.copies, diskCopy{w.now, d.durable.clone()})
		if len(d.copies) > copiesMax {
			d.copies = slices.Delete(d.copies, 0, 1)
		}
	}
}

// stamp notes the time of a write, as a file system does.
func (w *world) stamp(n *node) {
	wall, _ := n.clock.read(w.now)
	n.disk.durable.written = uint64(wall)
}

// loseWrite is the effect of a crash on a disk: the write in flight is durable or lost, as a
// whole.
func (w *world) loseWrite(n *node) {
	d := &n.disk
	w.loseJournal(n, d.inFlight != nil && w.chance(0.5))
	d.inFlight, d.writing, d.journal = nil, false, nil
}
