package node

import "github.com/isotone/isotone/internal/core/replica"

// Steps sees what a node does, step by step, so that tests can stop a process at one. It may block. Before, After and
// Flushed are called on the goroutine of the core, the others on any.
type Steps interface {
	// Reached is called at a step outside of the core: of an operator's request, a start or an end.
	Reached(step string)
	// Before and After are called around each step of the replica, After before its effects are carried out.
	Before(*replica.Replica, *replica.Input)
	After(*replica.Replica, *replica.Effects)
	// Flushed is called when the output of a turn was written to its connections.
	Flushed()
	// Written is called when a write is durable, before the replica learns of it.
	Written(*replica.Write)
}

// reached tells s of a step.
func reached(s Steps, step string) {
	if s != nil {
		s.Reached(step)
	}
}
