package verify

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/strace"
	"github.com/isotone/isotone/internal/check/wallclock"
)

// slowBy is how much longer a slow disk takes for an fsync.
const slowBy = 50 * time.Millisecond

// possible returns the kinds of faults that can be injected here, and why others cannot. An error is about kinds that the user
// named: a run without them would be another one than was asked for.
func possible(wanted []string, count int, network, members bool) (kinds, leftOut []string, err error) {
	candidates := wanted
	if len(wanted) == 0 {
		candidates = FaultKinds
	}
	for _, kind := range candidates {
		why := impossible(kind, network, members)
		switch {
		case kind == "none":
		case why != "":
			leftOut = append(leftOut, kind+": "+why)
		case needsPeers(kind) && count > 1 || !needsPeers(kind):
			kinds = append(kinds, kind)
		case len(wanted) > 0: // else nobody expects it of one node
			leftOut = append(leftOut, kind+": a single node has no others, see --nodes")
		}
	}
	if len(wanted) > 0 && len(leftOut) > 0 {
		return nil, nil, isotone.Errorf(isotone.CodeInvalidArgument, "--faults %s", strings.Join(leftOut, "\n--faults "))
	}
	return kinds, leftOut, nil
}

// impossible returns why a kind of faults cannot be injected here, whatever the number of nodes, or "".
func impossible(kind string, network, members bool) string {
	switch {
	case kind == Member && !members:
		return "the driver cannot change the members of this system"
	case needsNetwork(kind) && !network:
		return namespace.NetworkDenied()
	case needsStrace(kind):
		return strace.Denied()
	case needsClock(kind):
		return wallclock.Denied()
	case (kind == Pause || kind == Term) && child.Stop == nil:
		return "this system has no such signal"
	}
	return ""
}

// inject begins a fault. It is ended by end, also after an error, unless that is nil.
func (n *nodes) inject(f plannedFault, targets []int) (end func() error, err error) {
	var victims []*node
	for _, i := range targets {
		victims = append(victims, n.list[i])
	}
	first := targets[0]
	switch f.kind {
	case Kill:
		return func() error { return each(victims, (*node).restart) }, each(victims, (*node).kill)
	case Term:
		return func() error { return each(victims, (*node).restart) }, each(victims, (*node).term)
	case Pause:
		return func() error { return each(victims, (*node).cont) }, each(victims, (*node).stop)
	case Cut:
		return func() error { return n.network.Connect(first+1, true) }, n.network.Connect(first+1, false)
	case SlowDisk, FailDisk:
		return n.disturbDisk(victims[0], f.kind)
	case Clock:
		return func() error { return each(victims, setClock(0)) }, each(victims, setClock(f.off))
	case ClockKill:
		return func() error { return each(victims, (*node).replace) }, each(victims, setClock(f.off))
	}
	rules := n.rules(f.kind, first)
	return func() error { return n.network.End(rules...) }, n.network.Begin(rules...)
}

// rules returns those of a fault of the links between a node and the others. Hosts are numbered from 1.
func (n *nodes) rules(kind string, first int) []namespace.Rule {
	packets := namespace.Dropped()
	if kind == Loss {
		packets = namespace.Lost(1. / 3)
	}
	in, out := namespace.Into(first+1, len(n.list), packets), namespace.OutOf(first+1, len(n.list), packets)
	switch kind {
	case CutIn:
		return in
	case CutOut:
		return out
	}
	return append(in, out...)
}

// each calls do for all, and returns all errors.
func each[T any](list []T, do func(T) error) error {
	var errs []error
	for _, one := range list {
		errs = append(errs, do(one))
	}
	return errors.Join(errs...)
}

// disturbDisk has strace delay the fsyncs of a node, or have them fail, until end is called. A node whose fsyncs
// failed may end by itself, and is started again in any case.
func (n *nodes) disturbDisk(victim *node, kind string) (end func() error, err error) {
	how := fmt.Sprintf("delay_exit=%d", slowBy.Microseconds())
	if kind == FailDisk {
		how, victim.mayEnd = "error=EIO", true
	}
	tracer, err := strace.Inject(victim.process, filepath.Join(n.dir, "strace.log"), how)
	if err != nil {
		return nil, err
	}
	_ = strace.Attached(tracer, victim.process) // where it cannot, the fault has no effect
	return func() error {
		err := strace.Detach(tracer)
		if kind == FailDisk { // what it wrote meanwhile may be lost
			err = errors.Join(err, victim.kill())
		}
		return errors.Join(err, victim.restart())
	}, nil
}

// clockTimeout bounds how long it may take until clocks of a node can be set.
const clockTimeout = 20 * time.Second

// setClock returns what has the wall clock of a node be ahead by so much. What the node starts afterwards has a right one.
func setClock(off time.Duration) func(*node) error {
	return func(n *node) (err error) {
		for late := time.Now().Add(clockTimeout); n.running(); {
			err = errors.Join(n.stop(), each(n.processes(), func(pid int) error { return wallclock.Set(pid, off) }))
			if err = errors.Join(err, n.cont()); !errors.Is(err, wallclock.ErrBusy) || time.Now().After(late) {
				return err
			}
		}
		return nil
	}
}

// ended returns the indexes of nodes that have ended although nobody has ended them, and may be started again.
func (n *nodes) ended() (list []int) {
	for i, node := range n.list {
		if !node.mayEnd && !node.running() && time.Since(node.started) >= restartMin {
			list = append(list, i)
		}
	}
	return slices.Clip(list)
}
