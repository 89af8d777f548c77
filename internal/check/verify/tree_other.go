//go:build !linux

package verify

import "os"

// signalAll sends a signal to the process of a node.
func (n *node) signalAll(s os.Signal) error { return n.process.Signal(s) }

// processes is not called: no clock can be set.
func (n *node) processes() []int { return nil }
