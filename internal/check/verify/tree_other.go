//go:build !linux

package verify

import (
	"os"

	"github.com/isotone/isotone/internal/check/child"
)

// signalAll sends a signal to the process of a node.
func (n *node) signalAll(s os.Signal) error { return n.process.Signal(s) }

// processes is not called: no clock can be set.
func (n *node) processes() []int { return nil }

// killGroup ends nothing: what a process leaves behind goes on here.
func killGroup(*child.Process) error { return nil }

// traced is not called: there is no strace.
func traced(*child.Process) bool { return true }
