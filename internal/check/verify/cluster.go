package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

const (
	// endTimeout bounds how long a process may take to end after SIGKILL, termTimeout after SIGTERM.
	endTimeout  = 20 * time.Second
	termTimeout = 10 * time.Second
	// prepareTimeout bounds each command that prepares a cluster.
	prepareTimeout = 2 * time.Minute
	// logTailMax is how much of a log an error has, in bytes.
	logTailMax = 2 << 10
)

// nodes are the processes of a system. One goroutine uses them.
type nodes struct {
	dir     string
	list    []*node
	network *network
}

// node is one process of a system.
type node struct {
	name    string
	log     string // path
	command driver.NodeCommand
	prefix  func(command []string) []string // has the command run where the node belongs
	process *child.Process                  // nil before the first start, and after kill
	started time.Time
	mayEnd  bool // nobody is surprised if the process ends
}

// newNodes prepares the nodes that a driver plans, on hosts of their own if network is set. None of them runs yet.
// End them by close.
func newNodes(ctx context.Context, dir string, count, portsEach int, network bool, plan func(driver.PlanRequest) (driver.Plan, error)) (n *nodes, err error) {
	n = &nodes{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if network {
		if n.network, err = newNetwork(count, filepath.Join(dir, "hosts.log")); err != nil {
			return n, err
		}
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o777); err != nil {
		return n, err
	}
	request := driver.PlanRequest{Dir: data}
	if request.Nodes, err = n.spots(count, portsEach); err != nil {
		return n, err
	}
	planned, err := plan(request)
	if err != nil {
		return n, err
	}
	for i, command := range planned.Nodes {
		name := fmt.Sprintf("node %d", i+1)
		n.list = append(n.list, &node{
			name: name, log: filepath.Join(dir, fmt.Sprintf("node%d.log", i+1)), command: command, prefix: n.network.prefix(i),
		})
	}
	return n, n.prepare(ctx, planned.Prepare)
}

// spots returns where nodes may listen.
func (n *nodes) spots(count, portsEach int) (list []driver.NodeSpot, err error) {
	const first = 8080 // on a host of its own, where all ports are free
	for i := range count {
		spot := driver.NodeSpot{Host: "127.0.0.1"}
		from := first
		if n.network != nil {
			spot.Host = n.network.host(i)
		} else if from, err = ports.Free(portsEach); err != nil {
			return nil, err
		}
		for j := range portsEach {
			spot.Ports = append(spot.Ports, from+j)
		}
		list = append(list, spot)
	}
	return list, nil
}

// prepare runs the commands that come before the first start.
func (n *nodes) prepare(ctx context.Context, commands []driver.Command) error {
	for _, c := range commands {
		log := filepath.Join(n.dir, "prepare.log")
		p, err := child.Run(strings.Join(c.Command, " "), log, environ(c), inDir(c))
		if err != nil {
			return err
		}
		select {
		case <-p.Ended():
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(prepareTimeout):
			err = fmt.Errorf("%s: still runs after %v", p.Name, prepareTimeout)
		}
		if err != nil {
			return errors.Join(err, p.Signal(os.Kill), killGroup(p))
		}
		if !p.State().Success() {
			return fmt.Errorf("%s: %v:\n%s", p.Name, p.State(), tail(p.Log()))
		}
	}
	return nil
}

// environ returns the environment of a command: what any process needs, and its own.
func environ(c driver.Command) []string { return append(cluster.Inherited(), c.Env...) }

// inDir returns a command line that runs a command in its directory.
func inDir(c driver.Command) []string {
	if c.Dir == "" {
		return c.Command
	}
	return append([]string{"env", "--chdir=" + c.Dir}, c.Command...)
}

func (n *nodes) addresses() (list []string) {
	for _, node := range n.list {
		list = append(list, node.command.Address)
	}
	return list
}

func (n *nodes) names() (list []string) {
	for _, node := range n.list {
		list = append(list, node.name)
	}
	return list
}

func (n *nodes) start() error {
	for _, node := range n.list {
		if err := node.start(); err != nil {
			return err
		}
	}
	return nil
}

// close ends all processes and hosts.
func (n *nodes) close() error {
	var errs []error
	for _, node := range n.list {
		errs = append(errs, node.kill())
	}
	return errors.Join(append(errs, n.network.close())...)
}

func (n *node) start() error {
	if err := n.kill(); err != nil { // what the earlier process has left may keep its address
		return err
	}
	p, err := child.Run(n.name, n.log, environ(n.command.Command), n.prefix(inDir(n.command.Command)))
	if err == nil {
		n.process, n.started, n.mayEnd = p, time.Now(), false
	}
	return err
}

func (n *node) running() bool { return n.process != nil && !n.process.Exited() }

// kill ends the process at once, if it runs, and what it has left behind.
func (n *node) kill() error {
	if n.process == nil {
		return nil
	}
	var errs []error
	if n.running() {
		n.mayEnd = true
		errs = append(errs, n.signalAll(os.Kill))
		_, err := n.process.WaitExit(endTimeout)
		errs = append(errs, err)
	}
	errs = append(errs, killGroup(n.process))
	n.process = nil // its ID may become another's
	return errors.Join(errs...)
}

// term has the process end, and kills it if it has not after termTimeout.
func (n *node) term() error {
	n.mayEnd = true
	err := n.process.Signal(syscall.SIGTERM)
	if _, late := n.process.WaitExit(termTimeout); late != nil {
		return errors.Join(err, n.kill())
	}
	return err
}

func (n *node) stop() error { return n.signalAll(child.Stop) }
func (n *node) cont() error { return n.signalAll(child.Cont) }

// replace kills the process and starts it again. One that has ended by itself is left to whoever looks for such.
func (n *node) replace() error {
	if !n.running() {
		return nil
	}
	return n.start()
}

// restart starts the process again if it has ended.
func (n *node) restart() error {
	if n.running() {
		return nil
	}
	return n.start()
}

// tail returns the end of a log.
func tail(log string) string { return strings.TrimSpace(log[max(0, len(log)-logTailMax):]) }

// same returns a command as it is.
func same(command []string) []string { return command }
