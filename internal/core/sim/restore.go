package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// The loss of all disks, or of all but one, and the restoration from a backup, or from that disk (I9, I13). Where the new
// cluster begins is decided by replica.Beginning, as isotone restore and isotone recover have it decided. A restored cluster
// may be lost again, up to lossesMax times. The choices have a source of randomness of their own.

// lossesMax is how many clusters may be lost in a run.
const lossesMax = 3

// loss is about the clusters of a run that were lost.
type loss struct {
	rng *rand.Rand
	// planned is set while a cluster is to be lost, restored counts those that were restored.
	planned  bool
	restored int
	// floor is where the latest one begins, ids the last millisecond in which a node of a former one had made an id.
	floor, ids uint64
	// backup is the one that was restored last, and notes are what lies beside it, for each node.
	backup saved
	notes  []replica.Mark
	// raisedBefore is set if an operator had raised the floor before the latest restoration.
	raisedBefore bool
	// ghosts are the hellos of machines that were lost.
	ghosts []replica.Hello
}

func newLoss(seed uint64) loss { return loss{rng: rand.New(rand.NewPCG(seed, 0x1055))} }

// saved is a backup, with the time that the clock of its machine showed. Of a disk it is what recover finds there, and
// the time of the last write.
type saved struct {
	replica.Backup
	taken    uint64
	fromDisk bool
}

// loseAll plans the first loss. It happens late in a run: until workers are leased again, less can go wrong.
func (w *world) loseAll() bool {
	if w.loss.planned || w.loss.restored > 0 || w.now < w.cfg.duration*2/3 || w.cfg.formation.mayFail() {
		return false
	}
	return w.planLoss()
}

// planLoss takes a backup of what a leader has applied, has all machines lose their disks some time later, and
// restores the cluster on new ones. Clients go on, those that make ids with their leases.
func (w *world) planLoss() bool {
	l := w.leader()
	if l == nil || l.replica.Brief().Ceiling > oracle.CeilingMax/2 {
		return false
	}
	wall, _ := l.clock.read(w.now)
	if wall-worldStart-w.now < -writtenOffMax {
		return false // nobody believes the time of that backup either
	}
	w.loss.planned = true
	b := saved{Backup: l.replica.Backup(), taken: uint64(wall)}
	if again := w.loss.restored > 0 && w.loss.rng.IntN(2) == 0 && !w.loss.backup.fromDisk; again {
		b = w.loss.backup // nobody has taken one since
	}
	w.trace("backup at log index %d with ceiling %v", b.Index, time.Duration(b.Ceiling)-worldStart)
	w.loseLater(b)
	return true
}

func (w *world) loseLater(b saved) {
	w.after(w.between(0, 80*w.cfg.tick), func() {
		switch {
		case w.healing, w.cannotBegin(b):
			w.loss.planned = false
		case w.quiet: // a tampered disk is to be refused first
			w.loseLater(b)
		default:
			if w.loss.rng.IntN(3) == 0 {
				if left := w.survivor(b); !w.cannotBegin(left) {
					b = left
				}
			}
			w.destroy()
			// Answers that are on their way arrive before.
			wait := w.between(5*time.Millisecond, 40*w.cfg.tick)
			if s, err := oracle.DecodeState(b.State); err == nil && s.Interval == 0 {
				wait += w.interval.length // as the operator knows that there were limits after the backup
			}
			w.after(wait, func() { w.restore(b) })
		}
	})
}

// cannotBegin reports whether no operator can name where a cluster begins that is restored from b: time was so far ahead since.
func (w *world) cannotBegin(b saved) bool {
	latest := max(w.ceiling, w.latestOfTimelines())
	for _, n := range w.nodes {
		if n.up() {
			latest = max(latest, n.replica.Timelines().Ceiling)
		}
	}
	return latest > oracle.FloorMax && b.Ceiling <= oracle.FloorMax
}

// writtenOffMax is how old a file may look: with the time of a clock that was wrong by decades, recover refuses it, as the
// new cluster would have to begin decades ahead.
const writtenOffMax = 365 * 24 * time.Hour

// survivor returns what recover finds on one disk, if any is good enough, and otherwise b.
func (w *world) survivor(b saved) saved {
	n := w.nodes[w.loss.rng.IntN(len(w.nodes))]
	d := n.disk.durable
	if n.tampered != "" || d.isNew() || len(w.history) == 0 {
		return b
	}
	stored, err := replica.BackupOf(n.level, d.hard, d.snapshot, d.entries)
	if err != nil {
		return b
	}
	if off := time.Duration(d.written) - worldStart - w.now; off < -writtenOffMax {
		w.trace("the disk of node %d was last written at %v, which its operator does not believe", n.id, time.Duration(d.written)-worldStart)
		return b
	}
	w.trace("the disk of node %d is left, with ceiling %v, last written at %v", n.id, time.Duration(stored.Ceiling)-worldStart, time.Duration(d.written)-worldStart)
	return saved{Backup: stored, taken: d.written, fromDisk: true}
}

// destroy ends all machines for good.
func (w *world) destroy() {
	w.trace("all machines are lost")
	for _, n := range w.nodes {
		for _, m := range slices.Concat(n.makers, n.retired) {
			if m != nil && m.made {
				w.loss.ids = max(w.loss.ids, m.millis())
			}
		}
		if n.up() {
			w.loss.ghosts = append(w.loss.ghosts, n.replica.Hello())
		}
		w.crash(n)
		n.lost = true
	}
}

// millis returns the unix millisecond of the last id.
func (m *maker) millis() uint64 {
	l := m.gen.Layout()
	return m.last>>l.SequenceBits + uint64(l.Epoch)
}

// restore forms a new cluster from a backup on new machines, or on one from what is left.
func (w *world) restore(b saved) {
	state, err := oracle.DecodeState(b.State)
	if err != nil {
		w.fail("the backup cannot be decoded: %v", err)
		return
	}
	v := &w.loss
	again := v.restored > 0 && b.taken == v.backup.taken && b.Index == v.backup.Index && !b.fromDisk
	if b.fromDisk {
		b.taken = min(b.taken, uint64(worldStart+w.now)) // recover takes no time to come
	}
	switch {
	case again: // on the same machines, where the notes are
	case b.fromDisk:
		w.cfg.size = 1
	default:
		w.cfg.size = []int{1, 3, 3, w.cfg.size}[w.rng.IntN(4)]
	}
	if !again {
		v.notes = make([]replica.Mark, w.cfg.size)
	}
	v.restored, v.planned, v.backup = v.restored+1, false, b
	w.forgetForever()
	w.nodes, w.conns, w.servers, w.states, w.cluster = nil, [slots][slots]conn{}, nil, nil, 0
	w.wiped, w.raising, w.cfg.old = false, true, 0
	clear(w.removedAt)
	w.forgetClocks()
	w.forgetTimelines()
	told := w.rng.IntN(w.cfg.size)
	for i := range w.cfg.size {
		n := w.newNode()
		n.session, n.founders = uint64(v.restored)<<20, founders(w.cfg.size)
		begin := w.beginning(b, v.notes[i], i == told && w.cluesNeeded(again))
		v.notes[i] = replica.Mark{Time: begin, At: uint64(worldStart + w.now)}
		n.seed = &replica.Seed{Digest: strings.Repeat("5e", 32), Floor: begin, State: state}
		v.floor = max(v.floor, begin)
	}
	v.raisedBefore = w.floor.reached > 0
	if w.floor.reached == 0 {
		w.floor.asked = 0 // nobody asks again
	}
	w.ceiling = max(w.ceiling, v.floor)
	w.trace("a cluster of %d nodes is restored with the floor %v", w.cfg.size, time.Duration(v.floor)-worldStart)
	for _, n := range w.nodes {
		w.restart(n, w.between(0, 40*w.cfg.tick))
	}
	w.moveClients()
	w.haunt()
	w.loseAgain()
}

// beginning decides where the new cluster begins, for one machine: by its clock, the note of an earlier restoration, and a
// margin for the drift of the old clocks and for how far ahead of them the cluster was. If told, its operator knows how
// far timestamps went. A command that was interrupted is repeated.
func (w *world) beginning(b saved, note replica.Mark, told bool) uint64 {
	by := replica.Beginning{
		Backup: replica.Mark{Time: b.Ceiling, At: b.taken}, Earlier: []replica.Mark{note}, Now: uint64(worldStart + w.now), Force: true,
		Margin: time.Second + w.now*clockDriftPercent/100 + w.lead() + w.between(0, 10*time.Second),
	}
	if told {
		by.Floor = max(w.ceiling, w.latestOfTimelines())
		for _, o := range w.history {
			if o.Answered {
				by.Floor = max(by.Floor, o.Range.First.Time)
			}
		}
		if by.Floor > oracle.FloorMax { // no operator can name that; a clock showed it
			by.Earlier, by.Floor = append(by.Earlier, replica.Mark{Time: by.Floor, At: by.Now}), 0
		}
	}
	at, err := by.Time()
	if err == nil && w.loss.rng.IntN(3) == 0 {
		by.Prepared, by.Floor = at, 0
		at, err = by.Time()
	}
	if err != nil {
		w.fail("I13: nobody can say where the new cluster begins: %v", err)
	}
	return at
}

// cluesNeeded reports whether the right clock of a machine, and the note of an earlier restoration if there is one,
// may be below what was issued.
func (w *world) cluesNeeded(noted bool) bool {
	return w.timelines.raised || slices.ContainsFunc(w.cfg.kinds, func(k Kind) bool {
		return k == RaiseFloor && !(noted && w.loss.raisedBefore) || k >= ClockJump && k <= ClockFreeze
	})
}

// loseAgain may have the restored cluster be lost as well.
func (w *world) loseAgain() {
	if w.loss.restored >= lossesMax || w.loss.rng.IntN(2) == 0 {
		return
	}
	wait := time.Duration(w.loss.rng.Int64N(int64(200 * w.cfg.tick)))
	w.after(wait, func() {
		if !w.loss.planned && !w.healing && w.now < w.cfg.duration {
			w.planLoss()
		}
	})
}

// haunt has machines of lost clusters come back now and then. Members of a cluster that is formed refuse them. (A node that is still
// being set up may stop: the operator has said that they are gone. One that joins knows no cluster yet.)
func (w *world) haunt() {
	ghosts, of := w.loss.ghosts, w.loss.restored
	if len(ghosts) == 0 {
		return
	}
	w.after(time.Duration(w.loss.rng.Int64N(int64(100*w.cfg.tick))), func() {
		if w.closing || w.loss.restored != of {
			return
		}
		h, n := ghosts[w.loss.rng.IntN(len(ghosts))], w.nodes[w.loss.rng.IntN(len(w.nodes))]
		if n.up() && !n.replica.Forming() && n.replica.Hello().ClusterID != 0 && h.ClusterID != 0 && n.replica.Admit(h) == nil {
			w.fail("I6: node %d lets node %d of a lost cluster in", n.id, h.NodeID)
		}
		w.haunt()
	})
}

// checkRestored checks an id that a node of the restored cluster has made.
func (w *world) checkRestored(m *maker, first uint64) {
	l := m.gen.Layout()
	if ms := first>>l.SequenceBits + uint64(l.Epoch); w.loss.restored > 0 && m.lease.Node != 0 && ms <= w.loss.ids {
		w.fail("I13: %s makes an id of %d ms, and the lost cluster had made one of %d ms", m.name, ms, w.loss.ids)
	}
}
