package verify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/isotone/isotone/internal/check/child"
)

// signalAll sends a signal to the process of a node and to all that it has started, as far as they have not left it: a server
// may be many processes, in process groups of their own. The first is stopped meanwhile, so that it starts no more.
func (n *node) signalAll(s os.Signal) error {
	root := n.process.PID()
	errs := []error{n.process.Signal(child.Stop)}
	for _, pid := range descendants(root) {
		if err := syscall.Kill(pid, s.(syscall.Signal)); err != syscall.ESRCH { // it has ended meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, n.process.Signal(s))...)
}

// processes returns the process of a node and all that it has started, as far as they have not left it.
func (n *node) processes() []int {
	return append([]int{n.process.PID()}, descendants(n.process.PID())...)
}

// killGroup ends what is left in the process group of a process, such as a server that a script had started.
func killGroup(p *child.Process) error {
	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != syscall.ESRCH { // nothing is left
		return err
	}
	return nil
}

// traced reports whether a debugger has attached to a process.
func traced(p *child.Process) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	return err == nil && !strings.Contains(string(status), "\nTracerPid:\t0\n")
}

// descendants returns the processes that a process has started, and those that these have.
func descendants(root int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	children := map[int][]int{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The state and the parent follow the name, which may itself hold parentheses.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, err2 := strconv.Atoi(fields[1])
		if errors.Join(err1, err2) == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	for list := children[root]; len(list) > 0; list = list[1:] {
		pids = append(pids, list[0])
		list = append(list, children[list[0]]...)
	}
	return pids
}
