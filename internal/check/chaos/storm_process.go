//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/strace"
)

// An election timeout is 20 to 40 ticks of 10 ms; pauses last from a tenth of the
// shortest to ten of the longest.
const (
	pauseMin = 20 * time.Millisecond
	pauseMax = 4 * time.Second

	downMin = 20 * time.Millisecond
	downMax = 3 * time.Second
)

func (s *Storm) planKill() *fault {
	n := s.node()
	lasts := s.between(downMin, downMax)
	return &fault{about: processes(n), lasts: lasts, note: fmt.Sprintf("%s, down for %v", s.name(n), lasts), begin: n.Kill, end: n.Start}
}

// processes names the processes of nodes.
func processes(nodes ...*Node) (names []string) {
	for _, n := range nodes {
		names = append(names, fmt.Sprint("process of ", n.ID))
	}
	return names
}

// planKillAll first ends the other faults of processes.
func (s *Storm) planKillAll() *fault {
	lasts := s.between(downMin, downMax/3)
	f := &fault{
		about: processes(s.c.Nodes...), lasts: lasts, note: fmt.Sprintf("down for %v", lasts),
		begin: s.c.Kill, end: s.c.Start,
	}
	for _, a := range slices.Clone(s.active) {
		if a.meets(f) {
			s.end(a)
		}
	}
	return f
}

// planTerm sends SIGTERM. The node must exit with code 0, unless it gets the signal before it
// serves.
func (s *Storm) planTerm() *fault {
	n := s.node()
	lasts := s.between(downMin, downMax)
	f := &fault{about: processes(n), lasts: lasts, note: fmt.Sprintf("%s, for %v or longer", s.name(n), lasts)}
	f.begin = func() { s.term(n) }
	f.end = func() { s.startEnded(n) }
	return f
}

func (s *Storm) term(n *Node) {
	if !strings.Contains(n.Log(), `"serving"`) {
		n.ExpectExit()
	}
	n.Term()
}

// startEnded waits until a node that was asked to end has ended, and starts it.
func (s *Storm) startEnded(n *Node) {
	n.WaitExit(ExitTimeout)
	s.watch() // reports a wrong exit code
	if n.Exited() {
		n.Start()
	}
}

// planVersion ends a node by SIGTERM or kill -9, and starts its other version on the same
// data.
func (s *Storm) planVersion() *fault {
	n := s.node()
	lasts := s.between(downMin, downMax)
	how, begin := "SIGTERM", func() { s.term(n) }
	if s.rand.IntN(3) == 0 {
		how, begin = "kill -9", n.Kill
	}
	f := &fault{about: processes(n), lasts: lasts, begin: begin}
	f.note = fmt.Sprintf("%s by %s, for %v or longer", s.name(n), how, lasts)
	f.end = func() {
		n.ChangeVersion()
		s.startEnded(n)
	}
	return f
}

func (s *Storm) planPause() *fault {
	n := s.node()
	lasts := s.between(pauseMin, pauseMax)
	return &fault{about: processes(n), lasts: lasts, note: fmt.Sprintf("%s for %v", s.name(n), lasts), begin: n.Stop, end: n.Cont}
}

// diskFaultLasts leaves the node time to notice the fault and to end cleanly.
const diskFaultLasts = 6 * time.Second

// planFailSync makes one fsync fail. The node must stop at once: the next fsync would succeed
// without covering what this one did (I8).
func (s *Storm) planFailSync() *fault {
	n := s.node()
	var tracer *child.Process
	f := &fault{about: processes(n), lasts: diskFaultLasts, over: n.Exited, note: s.name(n)}
	f.begin = func() {
		n.ExpectExit()
		tracer = injectSyncs(s.t, n, fmt.Sprintf("error=EIO:when=%d", 1+s.rand.IntN(3)))
	}
	f.end = func() {
		if strace.Injected(tracer) {
			if _, err := n.proc.WaitExit(ExitTimeout); err != nil {
				s.t.Errorf("%s: a failed fsync does not end node %d (I8): %v", s.clock(), n.ID, err)
			}
		}
		s.endByDisk(n, "input/output error")
		n.do(strace.Detach(tracer))
		n.Start()
	}
	return f
}

// endByDisk checks a node whose disk has failed. If it has ended, it must have logged the
// reason. If it never used what is broken, it still runs, and is killed.
func (s *Storm) endByDisk(n *Node, reason string) {
	if !n.Exited() {
		s.logf("node %d has not noticed", n.ID)
		_ = n.proc.Kill() // it may be ending just now
		n.WaitExit(ExitTimeout)
		return
	}
	s.o.Tally.stopped++
	log := n.Log()
	if code := n.WaitExit(ExitTimeout); code != 1 || !strings.Contains(log, reason) {
		s.o.Tally.unexpected++
		s.t.Errorf("%s: node %d exited with code %d and without %q:\n%s", s.clock(), n.ID, code, reason, tail(n.logPath, logTailMax))
	}
}

func (s *Storm) planSlowSync() *fault {
	n := s.node()
	delay := s.between(time.Millisecond, 500*time.Millisecond)
	lasts := s.between(500*time.Millisecond, 4*time.Second)
	var tracer *child.Process
	f := &fault{about: processes(n), lasts: lasts, note: fmt.Sprintf("%s by %v for %v", s.name(n), delay, lasts)}
	f.begin = func() {
		tracer = injectSyncs(s.t, n, fmt.Sprintf("delay_enter=%d", delay.Microseconds()))
	}
	f.end = func() { n.do(strace.Detach(tracer)) }
	return f
}

// planFullDisk leaves no free block. A node that needs one must stop and log the reason.
func (s *Storm) planFullDisk() *fault {
	n := s.node()
	f := &fault{about: processes(n), lasts: diskFaultLasts, over: n.Exited, note: s.name(n)}
	f.begin = func() {
		n.ExpectExit()
		if err := n.volume.fill(); err != nil {
			s.t.Fatal(err)
		}
	}
	f.end = func() {
		s.endByDisk(n, "no space left on device")
		if err := n.volume.free(); err != nil {
			s.t.Fatal(err)
		}
		n.Start()
	}
	return f
}
