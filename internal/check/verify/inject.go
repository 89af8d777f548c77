package verify

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/wallclock"
)

// slowBy is how much longer a slow disk takes for an fsync.
const slowBy = 50 * time.Millisecond

// tracedPoll is the time between two looks whether strace has attached.
const tracedPoll = 5 * time.Millisecond

// possible returns the kinds of faults that can be injected here, and why others cannot.
func possible(wanted []string, count int, network, members bool) (kinds, leftOut []string) {
	if len(wanted) == 0 {
		wanted = FaultKinds
	}
	for _, kind := range wanted {
		why := ""
		switch {
		case kind == "none":
			continue
		case kind == Member && !members:
			why = "the driver cannot change the members of this system"
		case needsPeers(kind) && count == 1:
			continue // there is nothing to cut, and nobody to remove it
		case needsNetwork(kind) && !network:
			why = networkDenied()
		case needsStrace(kind):
			why = straceDenied()
		case needsClock(kind):
			why = wallclock.Denied()
		case (kind == Pause || kind == Term) && child.Stop == nil:
			why = "this system has no such signal"
		}
		if why != "" {
			leftOut = append(leftOut, kind+": "+why)
			continue
		}
		kinds = append(kinds, kind)
	}
	return kinds, leftOut
}

// straceDenied returns why strace cannot attach to a process here, or "".
var straceDenied = sync.OnceValue(func() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "strace is not installed"
	}
	out, err := exec.Command("strace", "-o", os.DevNull, "-f", "true").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("strace may not trace here: %v: %s", err, strings.TrimSpace(string(out)))
	}
	return ""
})

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
		return func() error { return n.network.connect(first, true) }, n.network.connect(first, false)
	case SlowDisk, FailDisk:
		return n.disturbDisk(victims[0], f.kind)
	case Clock:
		return func() error { return each(victims, setClock(0)) }, each(victims, setClock(f.off))
	case ClockKill:
		return func() error { return each(victims, (*node).replace) }, each(victims, setClock(f.off))
	}
	rules := n.rules(f.kind, first)
	return func() error { return each(rules, n.network.end) }, each(rules, n.network.begin)
}

// rules returns those of a fault of the links between a node and the others.
func (n *nodes) rules(kind string, first int) (list []rule) {
	for other := range n.list {
		switch {
		case other == first:
		case kind == Loss:
			list = append(list, thinned(other, first), thinned(first, other))
		case kind == Partition:
			list = append(list, lost(other, first), lost(first, other))
		case kind == CutIn:
			list = append(list, lost(other, first))
		default:
			list = append(list, lost(first, other))
		}
	}
	return list
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
	strace, err := child.Run("strace of "+victim.name, filepath.Join(n.dir, "strace.log"), environ(victim.command.Command), []string{
		"strace", "-f", "-qq", "-o", os.DevNull, "-p", fmt.Sprint(victim.process.PID()),
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:" + how,
	})
	if err != nil {
		return nil, err
	}
	for late := time.Now().Add(termTimeout); !traced(victim.process) && !strace.Exited() && victim.running() && time.Now().Before(late); {
		time.Sleep(tracedPoll)
	}
	return func() error {
		err := strace.Signal(os.Interrupt) // it detaches
		if _, late := strace.WaitExit(termTimeout); late != nil {
			err = errors.Join(err, strace.Signal(os.Kill))
			_, late = strace.WaitExit(endTimeout)
			err = errors.Join(err, late)
		}
		err = errors.Join(err, killGroup(strace)) // before it attaches, strace tries out what it can on a process of its own
		if kind == FailDisk {                     // what it wrote meanwhile may be lost
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
