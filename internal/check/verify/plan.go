package verify

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The kinds of faults. All but those of the network, of the disk and of clocks need signals only.
const (
	Kill      = "kill"       // SIGKILL; started again at the end
	Term      = "term"       // SIGTERM; started again at the end
	Pause     = "pause"      // SIGSTOP, SIGCONT at the end
	Cut       = "cut"        // nothing reaches the node, nor leaves it
	Partition = "partition"  // the same, between it and the other nodes only: clients still reach it
	CutIn     = "cut-in"     // what the other nodes send to it is lost
	CutOut    = "cut-out"    // what it sends to the other nodes is lost
	Loss      = "loss"       // a third of the packets between it and the other nodes is lost
	SlowDisk  = "slow-disk"  // each fsync takes 50 ms more
	FailDisk  = "fail-disk"  // each fsync fails with EIO; started again at the end
	Clock     = "clock"      // the wall clock jumps, and jumps back at the end
	ClockKill = "clock-kill" // the wall clock jumps ahead; at the end SIGKILL, and started again with a right one
)

// Member is the kind of fault for which the driver is needed: a node is removed from the members and killed. At the end it joins again, without data.
const Member = "member"

// EndedByItself is the kind of fault that nobody injected: the process of a node had ended, and was started again.
const EndedByItself = "ended by itself"

// FaultKinds lists all kinds that are injected.
var FaultKinds = []string{Kill, Term, Pause, Member, Cut, Partition, CutIn, CutOut, Loss, SlowDisk, FailDisk, Clock, ClockKill}

// needsNetwork reports whether a kind takes nodes that have networks of their own.
func needsNetwork(kind string) bool {
	return slices.Contains([]string{Cut, Partition, CutIn, CutOut, Loss}, kind)
}

func needsPeers(kind string) bool { return needsNetwork(kind) && kind != Cut || kind == Member }

func needsStrace(kind string) bool { return strings.HasSuffix(kind, "-disk") }

func needsClock(kind string) bool { return kind == Clock || kind == ClockKill }

const (
	offMin, offMax   = 10 * time.Millisecond, time.Hour
	calmMin, calmMax = 300 * time.Millisecond, 4 * time.Second
	lastMin, lastMax = 100 * time.Millisecond, 8 * time.Second
)

// plannedFault is a fault to come.
type plannedFault struct {
	calm  time.Duration // before it
	kind  string
	lasts time.Duration
	off   time.Duration // by which wall clocks are ahead meanwhile
	// first is the node that it hits, or latest. With all it hits every node.
	first int
	all   bool
}

// latest stands for the node that gave the latest answer.
const latest = -1

// planner draws faults. The same seed draws the same faults.
type planner struct {
	rand  *rand.Rand
	kinds []string // not empty
	nodes int
}

func newPlanner(seed uint64, kinds []string, nodes int) *planner {
	return &planner{rand: rand.New(rand.NewPCG(seed, 0)), kinds: kinds, nodes: nodes}
}

// next draws a fault. Half of them hit the node that gave the latest answer, which is probably the leader. One
// in eight of those that kill, pause or set clocks hits all nodes, of which the clocks are off by the same then, as they are after a
// server of time was wrong.
func (p *planner) next() plannedFault {
	f := plannedFault{
		calm: p.between(calmMin, calmMax), kind: p.kinds[p.rand.IntN(len(p.kinds))], lasts: p.between(lastMin, lastMax),
		first: p.rand.IntN(p.nodes),
	}
	if p.rand.IntN(2) == 0 {
		f.first = latest
	}
	f.all = p.rand.IntN(8) == 0 && (f.kind == Kill || f.kind == Pause || needsClock(f.kind))
	if needsClock(f.kind) {
		f.off = p.between(offMin, offMax)
	}
	if f.kind == Clock && p.rand.IntN(2) == 0 {
		f.off = -f.off
	}
	return f
}

// targets returns the nodes that a fault hits, given which one gave the latest answer.
func (f plannedFault) targets(latest, nodes int) (list []int) {
	switch {
	case f.all:
		for i := range nodes {
			list = append(list, i)
		}
		return list
	case f.first < 0:
		return []int{latest}
	}
	return []int{f.first}
}

// between draws a time, uniform on a logarithmic scale: 10 to 20 ms is as likely as 1 to 2 f.
func (p *planner) between(low, high time.Duration) time.Duration {
	return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), p.rand.Float64())).Round(time.Millisecond)
}
