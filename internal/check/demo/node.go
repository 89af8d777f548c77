package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/ports"
)

const (
	// readyTimeout bounds each wait for nodes to be ready, exitTimeout that for one to end.
	readyTimeout = 30 * time.Second
	exitTimeout  = 20 * time.Second
	// pollInterval is the time between two questions whether a node is ready.
	pollInterval = 20 * time.Millisecond
	// askTimeout bounds one question to a node.
	askTimeout = time.Second
	// logTailMax is how much of a log an error has.
	logTailMax = 2 << 10
)

// node is one member of the cluster: its settings, and its process. One goroutine uses it.
type node struct {
	id      uint64
	addr    string // for clients
	dir     string
	env     []string
	command []string

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

// newNodes returns the nodes of a cluster with its files in dir. None of them runs yet.
func newNodes(o *Options, dir string) ([]*node, error) {
	first, err := ports.Free(2 * Nodes) // of clients, then of peers
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range Nodes {
		peers = append(peers, fmt.Sprintf("%d=127.0.0.1:%d", i+1, first+Nodes+i))
	}
	var nodes []*node
	for i := range Nodes {
		n := &node{id: uint64(i + 1), addr: fmt.Sprintf("127.0.0.1:%d", first+i), dir: filepath.Join(dir, fmt.Sprintf("node%d", i+1))}
		n.command = append(slices.Clone(o.Command), "serve")
		n.env = append(slices.Clone(o.Environ),
			fmt.Sprintf("NODE_ID=%d", n.id), "HTTP_HOST=127.0.0.1", fmt.Sprintf("HTTP_PORT=%d", first+i), "ADVERTISE_ADDR="+n.addr,
			fmt.Sprintf("RAFT_ADDR=127.0.0.1:%d", first+Nodes+i), "PEERS="+strings.Join(peers, ","),
			"DATA_DIR="+n.dir, "THRIFT_PORT=0", "LOOPS=1")
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// start runs the node. It does not wait until the node serves.
func (n *node) start() error {
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.command[0], n.command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = n.env, log, log
	if err := child.Start(cmd); err != nil {
		return fmt.Errorf("start node %d: %w", n.id, err)
	}
	ended := make(chan struct{})
	n.cmd, n.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // why it ended is in its log
	}()
	return nil
}

func (n *node) log() string { return n.dir + ".log" }

// running reports whether the process has been started and has not ended.
func (n *node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// signal sends a signal.
func (n *node) signal(s os.Signal) error {
	if err := n.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v for node %d: %w", s, n.id, err)
	}
	return nil
}

// kill ends the process at once, if it runs, and waits until it has ended.
func (n *node) kill() error {
	if !n.running() {
		return nil
	}
	if err := n.signal(os.Kill); err != nil {
		return err
	}
	return n.wait()
}

// wait waits until the process has ended.
func (n *node) wait() error {
	select {
	case <-n.ended:
		return nil
	case <-time.After(exitTimeout):
		return fmt.Errorf("node %d still runs %v after it was told to end", n.id, exitTimeout)
	}
}

// fault describes the end of a process that nobody ended.
func (n *node) fault() error {
	b, err := os.ReadFile(n.log())
	if err != nil {
		return err
	}
	return fmt.Errorf("node %d ended by itself; the end of its log:\n%s", n.id, b[max(0, len(b)-logTailMax):])
}

// waitReady waits until all nodes are ready.
func waitReady(ctx context.Context, nodes []*node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the nodes are not ready after %v", readyTimeout))
	defer cancel()
	for _, n := range nodes {
		for !n.ready(ctx) {
			if !n.running() {
				return n.fault()
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(pollInterval):
			}
		}
	}
	return nil
}

// ready reports whether the node can serve, or name a leader that can.
func (n *node) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/ready", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
