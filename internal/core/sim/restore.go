package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// The loss of all disks, and the restoration from a backup (I9, I13).

// loss is that of the first cluster of a run.
type loss struct {
	// planned is set once a backup was taken, restored once a new cluster is to be formed from
	// it.
	planned, restored bool
	// floor is that of the new cluster, ids the last millisecond in which a node of the old one
	// had made an id.
	floor, ids uint64
}

// loseAll takes a backup of what a leader has applied, has all machines lose their disks some
// time later, and restores the cluster on new ones. Clients go on, those that make ids with
// their leases. It happens late in a run: until workers are leased again, less can go wrong.
func (w *world) loseAll() bool {
	l := w.leader()
	if w.loss.planned || w.now < w.cfg.duration*2/3 || w.cfg.formation.mayFail() || l == nil || l.replica.Status().Ceiling > oracle.CeilingMax/2 {
		return false
	}
	w.loss.planned = true
	b := l.replica.Backup()
	w.trace("backup at log index %d with ceiling %v", b.Index, time.Duration(b.Ceiling)-worldStart)
	w.loseLater(b)
	return true
}

func (w *world) loseLater(b replica.Backup) {
	w.after(w.between(0, 80*w.cfg.tick), func() {
		switch {
		case w.healing:
			w.loss.planned = false
		case w.quiet: // a tampered disk is to be refused first
			w.loseLater(b)
		default:
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

// destroy ends all machines for good.
func (w *world) destroy() {
	w.trace("all machines are lost")
	for _, n := range w.nodes {
		for _, m := range slices.Concat(n.makers, n.retired) {
			if m != nil && m.made {
				w.loss.ids = max(w.loss.ids, m.millis())
			}
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

// restore forms a new cluster from a backup on new machines.
func (w *world) restore(b replica.Backup) {
	state, err := oracle.DecodeState(b.State)
	if err != nil {
		w.fail("the backup cannot be decoded: %v", err)
		return
	}
	w.loss.restored = true
	w.cfg.size = []int{1, 3, 3, w.cfg.size}[w.rng.IntN(4)]
	w.nodes, w.conns, w.servers, w.states, w.cluster = nil, [slots][slots]conn{}, nil, nil, 0
	w.wiped, w.raising, w.cfg.old = false, true, 0
	clear(w.removedAt)
	w.forgetClocks()
	told := w.rng.IntN(w.cfg.size)
	for i := range w.cfg.size {
		n := w.newNode()
		n.session, n.founders = 1<<20, founders(w.cfg.size)
		n.seed = &replica.Seed{Digest: strings.Repeat("5e", 32), Floor: w.drawRestoreFloor(b.Ceiling, i == told), State: state}
		w.loss.floor = max(w.loss.floor, n.seed.Floor)
	}
	if w.floor.reached == 0 {
		w.floor.asked = 0 // nobody asks again
	}
	w.ceiling = max(w.ceiling, w.loss.floor)
	w.trace("a cluster of %d nodes is restored with the floor %v", w.cfg.size, time.Duration(w.loss.floor)-worldStart)
	for _, n := range w.nodes {
		w.restart(n, w.between(0, 40*w.cfg.tick))
	}
}

// drawRestoreFloor returns the floor that the operator of one new machine demands: its clock, with
// what a client may have moved the lost cluster ahead since the backup, and a margin for the drift of the old ones, and for how far ahead of them the cluster was. If the
// old clocks were wrong or the floor was raised, one operator is told how far that went.
func (w *world) drawRestoreFloor(ceiling uint64, told bool) uint64 {
	margin := w.now*clockDriftPercent/100 + w.lead() + w.cfg.ids.ahead + w.between(0, 10*time.Second)
	floor := max(ceiling, uint64(worldStart+w.now+replica.ClientFloorAheadMax)) + uint64(margin)
	if !told || !w.cluesNeeded() {
		return floor
	}
	floor = max(floor, w.ceiling, (w.loss.ids+1)*uint64(time.Millisecond))
	for _, o := range w.history {
		if o.Answered {
			floor = max(floor, o.Range.First.Time+1)
		}
	}
	return floor
}

// cluesNeeded reports whether the right clock of a machine may be below what was issued.
func (w *world) cluesNeeded() bool {
	return slices.ContainsFunc(w.cfg.kinds, func(k Kind) bool {
		return k == RaiseFloor || k >= ClockJump && k <= ClockFreeze
	})
}

// checkRestored checks an id that a node of the restored cluster has made.
func (w *world) checkRestored(m *maker, first uint64) {
	l := m.gen.Layout()
	if ms := first>>l.SequenceBits + uint64(l.Epoch); w.loss.restored && m.lease.Node != 0 && ms <= w.loss.ids {
		w.fail("I13: %s makes an id of %d ms, and the lost cluster had made one of %d ms", m.name, ms, w.loss.ids)
	}
}
