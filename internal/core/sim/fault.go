package sim

import (
	"slices"
	"time"
)

// Kind is a kind of fault or of operator action.
type Kind int

// The kinds. Those that last end by themselves. cause relies on their order.
const (
	Loss Kind = iota
	Double
	Delay
	LongTail
	Split
	Isolate
	OneWay
	Bridge
	Flap
	Reset
	Reject
	Crash
	CrashAll
	SlowDisk
	StalledDisk
	FailedDisk
	LongStall
	Pause
	PauseAll
	Suspend
	ClockJump
	ClockCentury
	ClockDrift
	ClockFreeze
	Transfer
	AddMember
	RemoveMember
	ReplaceMember
	AddLearner
	UpdateMember
	BadChange
	RaiseFloor
	RaiseLevel
	Roll
	ChangeVersion
	GiveBack
	OldCopy
	Copy
	Wipe
	WipeAmidst
	LoseAll
	// RevokeWorker is drawn apart from the others; see runRevoker.
	RevokeWorker
	// The next ones are drawn apart, too; see journals. A process dies in a write, a power cut tears the
	// sectors of one, a process dies while it counts its start, and a bit of a disk rots.
	CutWrite
	TornWrite
	DieInStart
	BitRot
	// MoveAll and OwnEntry are, too; see runMoves.
	MoveAll
	OwnEntry
	kindCount
)

var kindNames = [kindCount]string{
	"loss", "double", "delay", "long-tail", "split", "isolate", "one-way", "bridge", "flap", "reset", "reject", "crash", "crash-all", "slow-disk",
	"stalled-disk", "failed-disk", "long-stall", "pause", "pause-all", "suspend", "clock-jump", "clock-century", "clock-drift", "clock-freeze",
	"transfer", "add-member", "remove-member", "replace-member", "add-learner", "update-member", "bad-change", "raise-floor", "raise-level", "roll", "change-version", "give-back", "old-copy", "copy", "wipe",
	"wipe-amidst", "lose-all", "revoke-worker", "cut-write", "torn-write", "die-in-start", "bit-rot", "move-all", "own-entry",
}

// String returns the name of the kind.
func (k Kind) String() string { return kindNames[k] }

// fault is one that is going on or has just happened.
type fault struct {
	kind  Kind
	until time.Duration
}

// faultEcho is how long, in ticks, a fault counts as going on at least: its effects last.
const faultEcho = 40

// injectFaults injects faults at random intervals until w.quiet.
func (w *world) injectFaults() {
	w.after(w.between(w.cfg.faultEvery/2, w.cfg.faultEvery*3/2), func() {
		if w.quiet || len(w.cfg.kinds) == 0 {
			return
		}
		w.inject(w.cfg.kinds[w.rng.IntN(len(w.cfg.kinds))])
		w.injectFaults()
	})
}

// inject causes one fault, if it is possible now.
func (w *world) inject(k Kind) {
	lasts := w.between(w.cfg.tick, 80*w.cfg.tick)
	if w.chance(0.1) {
		lasts *= 5
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.lost {
		return // all are
	}
	if l := w.leader(); l != nil && w.chance(0.4) {
		n = l // the node whose faults matter most
	}
	if !w.cause(k, n, lasts) {
		return
	}
	w.noteFault(k, n.id, lasts)
}

// noteFault notes that a fault has been caused.
func (w *world) noteFault(k Kind, id uint64, lasts time.Duration) {
	w.note('f', uint64(k), id, uint64(lasts))
	w.trace("FAULT %v, node %d, for %v", k, id, lasts)
	w.active = slices.DeleteFunc(w.active, func(f fault) bool { return f.until < w.now })
	w.coverage.add(k, w.active)
	w.active = append(w.active, fault{k, w.now + max(lasts, faultEcho*w.cfg.tick)})
}

// cause causes a fault. It returns false if that is not possible now.
func (w *world) cause(k Kind, n *node, lasts time.Duration) bool {
	switch {
	case k <= LongTail:
		return w.degradeNetwork(k, lasts)
	case k <= Flap:
		return w.part(k, n, lasts)
	case k <= Reject:
		return w.hangUp(k, n, lasts)
	case k <= CrashAll:
		return w.kill(k, n, lasts)
	case k <= FailedDisk:
		return w.breakDisk(k, n, lasts)
	case k == LongStall:
		return w.stallDiskLong(n)
	case k <= Suspend:
		return w.freeze(k, n, lasts)
	case k <= ClockFreeze:
		return w.breakClock(k, n, lasts)
	case k <= Roll:
		return w.operate(k)
	case k == ChangeVersion:
		return w.changeVersion(n)
	case k == GiveBack:
		return w.releaseSome(n)
	case k == WipeAmidst:
		return w.wipeAmidst(n)
	case k == Copy:
		return w.copyDirectory(n)
	case k == LoseAll:
		return w.loseAll()
	default:
		return w.tamper(k, n)
	}
}

// degradeNetwork makes all links worse for a while.
func (w *world) degradeNetwork(k Kind, lasts time.Duration) bool {
	good := calm(w.cfg.tick)
	switch k {
	case Loss:
		w.weather.loss = 0.02 + 0.5*w.rng.Float64()
		w.after(lasts, func() { w.weather.loss = 0 })
	case Double:
		w.weather.double = 0.05 + 0.5*w.rng.Float64()
		w.after(lasts, func() { w.weather.double = 0 })
	case Delay:
		w.weather.spread = w.between(w.cfg.tick, 10*w.cfg.tick)
		w.after(lasts, func() { w.weather.spread = good.spread })
	case LongTail:
		w.weather.tail = 0.1 * w.rng.Float64()
		w.after(lasts, func() { w.weather.tail = 0 })
	}
	return true
}

// part blocks links for a while.
func (w *world) part(k Kind, n *node, lasts time.Duration) bool {
	if len(w.nodes) < 2 {
		return false
	}
	cut, bridge := w.cutLinks(k, n)
	if len(cut) == 0 {
		return false
	}
	block(cut, 1)
	if k == Bridge && w.chance(0.5) {
		w.crashBriefly(w.nodes[bridge], lasts)
	}
	if k == Flap {
		period := w.between(w.cfg.tick, 15*w.cfg.tick)
		w.flapping = max(w.flapping, w.now+lasts+3*period)
		w.flap(cut, period, lasts, false)
	} else {
		w.after(lasts, func() { block(cut, -1) })
	}
	return true
}

// hangUp ends connections of n, whose process lives on. With Reject a firewall refuses new ones
// for a while, in one direction or both.
func (w *world) hangUp(k Kind, n *node, lasts time.Duration) bool {
	if !n.up() || len(w.nodes) < 2 {
		return false
	}
	for _, o := range w.nodes {
		if o == n || !w.connected(n, o) || w.chance(0.3) {
			continue
		}
		w.conn(n, o).up = [2]bool{}
		w.tellGone(o, n, k == Reject)
		w.tellGone(n, o, k == Reject && w.chance(0.5))
		if k == Reject {
			cut := []*link{w.link(o, n), w.link(n, o)}[:1+w.rng.IntN(2)]
			block(cut, 1)
			w.after(lasts, func() { block(cut, -1) })
		}
	}
	return true
}

// flap unblocks and blocks links in turns, at intervals of period, and leaves them unblocked.
func (w *world) flap(cut []*link, period, left time.Duration, blocked bool) {
	w.after(period, func() {
		if blocked {
			block(cut, 1)
		} else {
			block(cut, -1)
		}
		if left > 0 || blocked {
			w.flap(cut, period, left-period, !blocked)
		}
	})
}

// cutLinks returns the links to block: those between two sides, in one direction with OneWay,
// and but for those of one node with Bridge.
func (w *world) cutLinks(k Kind, n *node) (cut []*link, bridge int) {
	side := make([]int, len(w.nodes))
	for i := range side {
		side[i] = w.rng.IntN(2)
		if k == Isolate {
			side[i] = 0
		}
	}
	if k == Isolate {
		side[n.slot] = 1
	}
	bridge = w.rng.IntN(len(w.nodes))
	for i, a := range w.nodes {
		for j, b := range w.nodes {
			apart := i != j && side[i] != side[j]
			switch {
			case !apart,
				k == OneWay && side[i] == 0,
				k == Bridge && (i == bridge || j == bridge):
			default:
				cut = append(cut, w.link(a, b))
			}
		}
	}
	return cut, bridge
}

// crashBriefly kills a process at some time during a fault and restarts it at once: it may
// have forgotten towards one side what it promised to the other.
func (w *world) crashBriefly(n *node, within time.Duration) {
	w.after(w.between(0, within), func() {
		if n.up() && !n.paused {
			w.crash(n)
			w.restart(n, w.between(0, w.cfg.tick))
			if l := w.leader(); l != nil && l != n && w.chance(0.7) {
				cut := []*link{w.link(l, n), w.link(n, l)}
				block(cut, 1)
				w.after(w.between(0, 30*w.cfg.tick), func() { block(cut, -1) })
			}
		}
	})
}

func block(links []*link, by int) {
	for _, l := range links {
		l.blocked += by
	}
}

// kill crashes processes and restarts them later.
func (w *world) kill(k Kind, n *node, lasts time.Duration) bool {
	victims := []*node{n}
	if k == CrashAll {
		victims = slices.Clone(w.nodes)
	}
	done := false
	for _, v := range victims {
		if v.up() {
			w.crash(v)
			down := lasts
			if w.chance(0.3) {
				down = w.cfg.tick // up again before anyone notices
			}
			w.restart(v, w.between(0, down))
			done = true
		}
	}
	return done
}

// restart starts a process after a while, unless it runs by then or was refused.
func (w *world) restart(n *node, in time.Duration) {
	w.after(in, func() {
		if !n.up() && !n.refused {
			w.start(n)
		}
	})
}

func (w *world) breakDisk(k Kind, n *node, lasts time.Duration) bool {
	if n.disk.mode != diskNormal || !n.up() {
		return false
	}
	n.disk.mode = []diskMode{diskSlow, diskStalled, diskFailing}[k-SlowDisk]
	w.after(lasts, func() {
		n.disk.mode = diskNormal
		w.sync(n)
		w.restart(n, w.between(0, 20*w.cfg.tick))
	})
	return true
}

// stallDiskLong makes a disk hang for minutes, once in a run: it takes as long as a hundred
// other faults.
func (w *world) stallDiskLong(n *node) bool {
	if w.stalledLong || !w.breakDisk(StalledDisk, n, w.between(30*time.Second, 5*time.Minute)) {
		return false
	}
	w.stalledLong = true
	w.cfg.duration += 30 * time.Second
	return true
}

// freeze pauses processes. Whatever is sent to them meanwhile arrives at once.
func (w *world) freeze(k Kind, n *node, lasts time.Duration) bool {
	victims := []*node{n}
	if k == PauseAll {
		victims = slices.Clone(w.nodes)
	}
	done := false
	for _, v := range victims {
		if !v.up() || v.paused {
			continue
		}
		done = true
		if k == Pause && w.chance(0.5) {
			v.pauseNext = lasts // after its next sends, with the answers on their way
		} else {
			w.pause(v, lasts)
		}
	}
	if k == Suspend && done {
		// The machine slept with its disk.
		w.breakDisk(StalledDisk, n, lasts)
	}
	return done
}

// pause pauses one process.
func (w *world) pause(n *node, lasts time.Duration) {
	n.paused, n.waking = true, false
	session := n.session
	w.after(lasts, func() {
		if n.session == session && n.paused {
			n.paused, n.slowTurns = false, 3
			w.wake(n)
		}
	})
}

func (w *world) breakClock(k Kind, n *node, lasts time.Duration) bool {
	n.clock.settle(w.now)
	n.jumps += 2 // the clock may be set right again
	switch k {
	case ClockJump:
		n.clock.wall += w.between(-5*time.Hour, 5*time.Hour)
		if w.chance(0.5) {
			n.clock.wall = worldStart + w.now // set right again
		}
	case ClockCentury:
		off := time.Duration(100 * 365 * 24 * time.Hour)
		if w.chance(0.5) {
			off = -off
		}
		n.clock.wall += off
		if w.chance(0.7) {
			w.after(lasts, func() { n.clock.wall -= off }) // somebody notices
		}
	case ClockDrift:
		n.clock.rate = w.drawRate()
	case ClockFreeze:
		n.clock.frozen = true
		w.after(lasts, func() {
			n.clock.settle(w.now)
			n.clock.frozen = false
		})
	}
	return true
}

// drawRate draws the rate of a clock, often at a bound.
func (w *world) drawRate() float64 {
	switch w.rng.IntN(4) {
	case 0:
		return 1 - clockDriftMax
	case 1:
		return 1 + clockDriftMax
	case 2:
		return 1
	}
	return 1 + clockDriftMax*(2*w.rng.Float64()-1)
}

// clockDriftMax bounds the difference of a clock's rate from 1: what lease mode assumes.
const clockDriftMax = clockDriftPercent / 100.0

const clockDriftPercent = 10
