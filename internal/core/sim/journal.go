package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/journal"
	"github.com/isotone/isotone/internal/core/replica"
)

// The journals of the nodes: those of production, on files of sectors. What the files hold is compared
// with what was acknowledged. How a crash tears writes, and which bits rot, has a source of randomness
// of its own, so that runs in which that does no harm are the same as before.

// journals draws what happens to them.
type journals struct {
	rng          *rand.Rand
	spareSectors int64
	// Processes die in the middle of a write in this run, a bit rots on one disk, and no file system
	// exchanges names.
	cuts, rots, renames bool
}

// One in so many runs has processes that die in writes, a bit that rots, and no exchange of names.
const (
	cutRuns    = 3
	rotRuns    = 4
	renameRuns = 4
)

func newJournals(seed uint64) journals {
	j := journals{rng: rand.New(rand.NewPCG(seed, 0xd15c))}
	j.spareSectors = 2 + j.rng.Int64N(30)
	j.cuts, j.rots, j.renames = j.rng.IntN(cutRuns) == 0, j.rng.IntN(rotRuns) == 0, j.rng.IntN(renameRuns) == 0
	return j
}

// save has a node write what is in flight. Its syncs fail if its disk does; the process ends in a step
// of that, if killed is not 0.
func (w *world) save(n *node, killed int) error {
	d := &n.disk
	d.tried = true
	return d.durable.directory.run(d.mode, killed, func() error { return d.journal.Save(inJournal(d.inFlight)) })
}

func inJournal(write *replica.Write) journal.Write {
	return journal.Write{HardState: write.HardState, Entries: write.Entries, Snapshot: write.Snapshot, Compact: write.Compact, ClusterID: write.ClusterID}
}

// loseJournal is the effect of a crash on a journal: with survives, the write in flight is durable.
func (w *world) loseJournal(n *node, survives bool) {
	d, rng := &n.disk, w.journals.rng
	write := d.inFlight
	if write != nil && !d.tried {
		killed := 0
		if !survives {
			killed = 1 + rng.IntN(2+rng.IntN(5))
		}
		if w.save(n, killed) == nil {
			w.persist(n, write)
			write = nil
		}
	}
	if rng.IntN(3) > 0 && d.durable.directory.cutPower() {
		w.noteFault(TornWrite, n.id, 0)
	}
	if d.durable.directory.data == nil {
		w.fail("I8: node %d has lost the journal from which it ran", n.id)
		return
	}
	w.settle(n, d.durable, write)
}

// settle finds out what a crash has left of a journal: what was acknowledged before it, and perhaps the
// write that was not.
func (w *world) settle(n *node, before diskState, write *replica.Write) {
	d := &n.disk
	d.durable, d.acknowledged, d.unsure = before, before, write
	if dir := before.directory; dir.data == nil && dir.spare == nil && before.isNew() {
		d.durable.directory = nil // the names of its first files were never durable
		return
	}
	found, err := before.directory.read()
	switch {
	case err != nil:
		w.fail("I8: node %d cannot read its disk after a crash: %w", n.id, err)
	case write != nil && before.save(write).isIn(found):
		w.persist(n, write)
	case !before.isIn(found):
		w.fail("I8: node %d had acknowledged a log to %d, and has one to %d after a crash", n.id, before.lastIndex(), diskState{entries: found.Entries, snapshot: found.Snapshot}.lastIndex())
	}
}

// openJournal has a process that starts read its journal, and count the start. It returns false if the
// disk has failed, or is damaged.
func (w *world) openJournal(n *node) (found journal.Recovered, ok bool) {
	d := &n.disk
	for {
		if d.durable.directory == nil && !w.createJournal(n) {
			return found, false
		}
		if d.journal != nil {
			return found, true
		}
		if d.rotten != "" || w.violation != nil || w.journals.rng.IntN(6) > 0 {
			break
		}
		w.dieInStart(n)
	}
	if w.violation != nil {
		return found, false
	}
	dir := d.durable.directory
	j, found, err := journal.Open(dir.options(), dir.data)
	if w.checkOpened(n, found, err); err != nil || w.violation != nil {
		return found, false
	}
	if err := dir.run(d.mode, 0, func() (err error) {
		err = j.Begin()
		for err == nil && j.Identity().Boot <= d.durable.boot { // an older copy was started meanwhile
			err = j.Begin()
		}
		return err
	}); err != nil {
		w.trace("node %d does not start: %v", n.id, err)
		if d.mode != diskFailing {
			w.fail("node %d does not start from its disk: %w", n.id, err)
		}
		return found, false
	}
	d.durable.boot = j.Identity().Boot
	d.journal, d.unsure = j, nil
	return found, true
}

// createJournal has the first process of a disk create its journal, perhaps after some that die in that. It
// returns false if the disk fails.
func (w *world) createJournal(n *node) bool {
	d, rng := &n.disk, w.journals.rng
	dir := &directory{rng: rng, spareSectors: w.journals.spareSectors, renames: w.journals.renames}
	if n.founders == nil && rng.IntN(2) == 0 {
		d.durable.cluster = w.cluster // its JOIN has told it
	}
	id := journal.Identity{ClusterID: d.durable.cluster, NodeID: n.id, Incarnation: d.durable.incarnation, Boot: 1}
	create := func() (err error) {
		d.journal, err = journal.Create(dir.options(), id)
		return err
	}
	for dir.data == nil && rng.IntN(6) == 0 {
		w.trace("node %d dies while it creates its journal", n.id)
		w.noteFault(DieInStart, n.id, 0)
		_ = dir.run(d.mode, 1+rng.IntN(10), create)
		if d.journal = nil; rng.IntN(3) > 0 {
			dir.cutPower()
		}
	}
	var err error
	if dir.data == nil {
		err = dir.run(d.mode, 0, create)
	}
	if dir.data != nil {
		d.durable.directory, d.durable.boot = dir, 1
	}
	if err != nil {
		w.trace("node %d does not start: %v", n.id, err)
		if d.mode != diskFailing {
			w.fail("node %d cannot create its journal: %w", n.id, err)
		}
		return false
	}
	return true
}

// checkOpened checks what a process has found on its disk.
func (w *world) checkOpened(n *node, found journal.Recovered, err error) {
	d := &n.disk
	damage, isDamage := errors.AsType[*journal.CorruptError](err)
	switch {
	case isDamage && d.rotten != "" && damage.Record == d.rotten:
		w.damaged(n, err)
	case d.rotten != "":
		w.fail("I6: node %d starts from a disk whose %s has rotted: %v", n.id, d.rotten, err)
	case err != nil:
		w.fail("node %d cannot read its disk: %w", n.id, err)
	case !d.durable.isIn(found) || found.Identity.NodeID != n.id:
		w.fail("I8: node %d does not find what it had acknowledged", n.id)
	}
}

// dieInStart has a process end, or the power, while it counts its start.
func (w *world) dieInStart(n *node) {
	d, rng := &n.disk, w.journals.rng
	dir := d.durable.directory
	j, _, err := journal.Open(dir.options(), dir.data)
	if err != nil {
		w.fail("node %d cannot read its disk: %w", n.id, err)
		return
	}
	w.trace("node %d dies while it starts", n.id)
	w.noteFault(DieInStart, n.id, 0)
	_ = dir.run(d.mode, 1+rng.IntN(6), j.Begin)
	before, write := d.durable, d.unsure
	if write != nil {
		before = d.acknowledged
	}
	if rng.IntN(3) > 0 {
		dir.cutPower()
	}
	w.settle(n, before, write)
}

// runCuts has processes die in the middle of a write, now and then.
func (w *world) runCuts() {
	j := &w.journals
	if !j.cuts {
		return
	}
	w.after(w.cfg.tick*time.Duration(5+j.rng.IntN(150)), func() {
		if w.closing || w.healing {
			return
		}
		if n := w.nodes[j.rng.IntN(len(w.nodes))]; !w.quiet && n.up() {
			n.disk.cut = true
		}
		w.runCuts()
	})
}

// cutWrite ends a process that is to die in its next write.
func (w *world) cutWrite(n *node) bool {
	if !n.disk.cut || w.quiet {
		return false
	}
	n.disk.cut = false
	w.noteFault(CutWrite, n.id, 0)
	w.crash(n)
	w.restart(n, w.cfg.tick*time.Duration(w.journals.rng.IntN(30)))
	return true
}

// runRot has a bit rot at some time, on a disk of a minority.
func (w *world) runRot() {
	j := &w.journals
	if !j.rots {
		return
	}
	w.after(w.cfg.tick*time.Duration(20+j.rng.IntN(200)), func() {
		if !w.closing && !w.healing && (w.quiet || !w.rot(w.nodes[j.rng.IntN(len(w.nodes))])) {
			w.runRot()
		}
	})
}

// rot flips a bit of a journal. The next process notices it when it starts, soon.
func (w *world) rot(n *node) bool {
	d := &n.disk
	if !n.up() || !w.mayLose(n) {
		return false
	}
	w.wiped = true
	w.crash(n)
	d.rotten = fmt.Sprintf("sector %d", d.durable.directory.data.rot())
	w.trace("node %d: %s of its disk has rotted", n.id, d.rotten)
	w.noteFault(BitRot, n.id, 0)
	w.restart(n, w.cfg.tick*time.Duration(w.journals.rng.IntN(40)))
	return true
}

// damaged handles a node that does not start because its disk is damaged. Its operator moves the
// directory away, or leaves the machine alone, and has the member replaced.
func (w *world) damaged(n *node, err error) {
	rng := w.journals.rng
	w.trace("node %d does not start: %v", n.id, err)
	n.disk.rotten, n.tampered = "", wipedAmidst
	if rng.IntN(2) == 0 {
		n.refused = true
	} else {
		w.wipe(n, w.cfg.tick*time.Duration(rng.IntN(20)))
	}
	w.after(w.cfg.tick*time.Duration(rng.IntN(100)), func() {
		w.asLeader(func(l *node) {
			if len(w.nodes) < slots && !w.quiet {
				w.propose(l, replica.ReplaceMember, n.id)
				w.awaitReplacement(n, 20)
			}
		})
	})
}

// isNew reports whether no Save has been acknowledged.
func (d diskState) isNew() bool { return d.hard == nil && d.snapshot == nil && len(d.entries) == 0 }

// isIn reports whether a journal has recovered d.
func (d diskState) isIn(r journal.Recovered) bool {
	meta, have, h, hard := d.snapshot.GetMetadata(), r.Snapshot.GetMetadata(), d.hard, r.HardState
	return r.Identity.ClusterID == d.cluster && r.Identity.Incarnation == d.incarnation &&
		h.GetTerm() == hard.GetTerm() && h.GetVote() == hard.GetVote() && max(h.GetCommit(), meta.GetIndex()) == hard.GetCommit() &&
		meta.GetIndex() == have.GetIndex() && meta.GetTerm() == have.GetTerm() && sameConf(meta.GetConfState(), have.GetConfState()) &&
		slices.Equal(d.snapshot.GetData(), r.Snapshot.GetData()) && slices.EqualFunc(d.entries, r.Entries, sameEntry)
}

// sameConf ignores that raft sets AutoLeave to false where it is missing.
func sameConf(a, b *raftpb.ConfState) bool {
	return slices.Equal(a.GetVoters(), b.GetVoters()) && slices.Equal(a.GetLearners(), b.GetLearners()) && slices.Equal(a.GetVotersOutgoing(), b.GetVotersOutgoing()) &&
		slices.Equal(a.GetLearnersNext(), b.GetLearnersNext()) && a.GetAutoLeave() == b.GetAutoLeave()
}

func sameEntry(a, b *raftpb.Entry) bool {
	return a.GetIndex() == b.GetIndex() && a.GetTerm() == b.GetTerm() && a.GetType() == b.GetType() && slices.Equal(a.GetData(), b.GetData())
}
