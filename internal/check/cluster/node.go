package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

const (
	// exitTimeout bounds the wait for a process to end.
	exitTimeout = 20 * time.Second
	// logTailMax is how much of a log an error has, in bytes.
	logTailMax = 2 << 10
)

// Node is one member of the cluster: its settings, and its process.
type Node struct {
	ID uint64
	// Addr is for clients, RaftAddr for peers.
	Addr, RaftAddr string
	// Env is the environment of the next start. Of two variables with one name the later one counts.
	Env []string

	log     string // path
	command []string
	http    *http.Client
	process *child.Process // nil: it was never started
}

// Start runs the node. It does not wait until the node serves.
func (n *Node) Start() error {
	p, err := child.Run(fmt.Sprintf("node %d", n.ID), n.log, n.Env, n.command)
	if err == nil {
		n.process = p
	}
	return err
}

// Running reports whether the process has been started and has not ended.
func (n *Node) Running() bool { return n.process != nil && !n.process.Exited() }

// Ended is closed when the process has ended. The node must have been started.
func (n *Node) Ended() <-chan struct{} { return n.process.Ended() }

// Signal sends a signal to the process. The node must have been started.
func (n *Node) Signal(s os.Signal) error { return n.process.Signal(s) }

// Wait waits until the process has ended. The node must have been started.
func (n *Node) Wait() error {
	_, err := n.process.WaitExit(exitTimeout)
	return err
}

// Stop ends the process by SIGTERM, which Windows does not have, and waits until it has ended, with success.
func (n *Node) Stop() error {
	if err := errors.Join(n.Signal(syscall.SIGTERM), n.Wait()); err != nil {
		return err
	}
	if state := n.process.State(); !state.Success() {
		return fmt.Errorf("node %d has ended after SIGTERM by %v; the end of its log:\n%s", n.ID, state, n.tail())
	}
	return nil
}

// Kill ends the process at once, if it runs, and waits until it has ended.
func (n *Node) Kill() error {
	if !n.Running() {
		return nil
	}
	if err := n.Signal(os.Kill); err != nil {
		return err
	}
	return n.Wait()
}

// Fault describes the end of a process that nobody ended.
func (n *Node) Fault() error {
	return fmt.Errorf("node %d has ended by itself (%v); the end of its log:\n%s", n.ID, n.process.State(), n.tail())
}

func (n *Node) tail() string {
	if n.process == nil {
		return "(it was not started)"
	}
	log := n.process.Log()
	return strings.TrimSpace(log[max(0, len(log)-logTailMax):])
}
