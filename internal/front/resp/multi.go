package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone"
)

// This file has MULTI, EXEC, DISCARD, WATCH and UNWATCH. Pipelines of several client libraries
// are wrapped in MULTI and EXEC unless they are told otherwise. No command here changes
// anything that another client could see half done, so a transaction is a pipeline whose
// answers come as one array.

// Limits of a transaction (I7). Larger pipelines do without MULTI.
const (
	// queueCommandsMax bounds its commands, to as many as a batch has.
	queueCommandsMax = batchCommandsMax
	// queueBytesMax bounds the bytes of its commands: those of queueCommandsMax TS commands in
	// their longest form without options.
	queueBytesMax = 64 << 10
	// execBytesMax bounds its answers, about those of two SNOWFLAKE commands of the largest
	// count: they are held back until the last one is known.
	execBytesMax = 1 << 20
)

// transaction is what a connection has between MULTI and the answer to EXEC.
type transaction struct {
	queue     []byte // the commands, as they arrived
	commands  int    // in queue
	refused   bool   // a command was not queued: EXEC runs none
	running   bool   // EXEC runs
	done      int    // bytes of queue that have been run
	held      held   // the connection while EXEC runs
	elsewhere []byte // the answer to EXEC, if that redirects instead of answering; nil: it does not
}

// held is a wire whose output is held back.
type held struct {
	wire
	out []byte
}

func (h *held) Buffered() []byte     { return h.out }
func (h *held) SetBuffered(b []byte) { h.out = b }

// unqueued reports whether cmd is carried out between MULTI and EXEC instead of being queued.
func (cmd *command) unqueued() bool {
	switch cmd.name {
	case "MULTI", "EXEC", "DISCARD", "WATCH", "QUIT", "RESET":
		return true
	}
	return false
}

// collect queues the command at the front of b, or runs it if it is one that ends or concerns
// the transaction. It is step between MULTI and EXEC.
func (c *conn) collect(b []byte) (used int, err error) {
	q := &c.front.request
	n, err := q.parse(b)
	if err != nil || n == 0 || len(q.args) == 0 {
		return c.other(q, n, err)
	}
	cmd := c.front.commands.find(q.args[0])
	if cmd != nil && cmd.name == "EXEC" && cmd.takes(len(q.args)) {
		return c.exec(n)
	}
	if cmd != nil && cmd.unqueued() {
		return c.other(q, n, nil)
	}
	r := &c.front.reply
	r.b, r.v3 = c.wire.Buffered(), c.resp3
	if c.transaction.add(cmd, q.args, b[:n], r) {
		r.simple("QUEUED")
	} else {
		c.transaction.refused = true
	}
	c.wire.SetBuffered(r.b)
	r.b = nil
	return n, nil
}

// add queues a command, text, or answers why it cannot be queued.
func (t *transaction) add(cmd *command, args [][]byte, text []byte, r *reply) bool {
	switch {
	case cmd == nil:
		r.unknown(args)
	case !cmd.takes(len(args)):
		r.wrongArity(strings.ToLower(cmd.name))
	case cmd.name == "WORKER", cmd.name == "AUTH", cmd.name == "HELLO", cmd.isOfSessions():
		// An abandoned transaction could not say what it has leased, or for whom, and a session has an answer for each
		// request.
		r.fault("ERR", cmd.name+" is not allowed between MULTI and EXEC")
	case cmd.name == "INTERVAL" && waitsForPast(args):
		r.fault("ERR", "INTERVAL WAIT is not allowed between MULTI and EXEC")
	case t.commands == queueCommandsMax || len(t.queue)+len(text) > queueBytesMax:
		r.fault("ERR", fmt.Sprintf("a transaction has at most %d commands and %d bytes: send a pipeline without MULTI",
			queueCommandsMax, queueBytesMax))
	default:
		t.queue = append(t.queue, text...)
		t.commands++
		return true
	}
	return false
}

// exec answers EXEC, which has n bytes. If a queued command waits for the backend, it uses
// nothing, and is called again with the same EXEC when that is answered.
func (c *conn) exec(n int) (used int, err error) {
	t := c.transaction
	if t.refused {
		return n, c.endTransaction("EXECABORT", "Transaction discarded because of previous errors.")
	}
	if !t.running {
		t.running, t.held.wire = true, c.wire
		c.wire = &t.held
	}
	for t.done < len(t.queue) && !c.waiting && len(t.held.out) <= execBytesMax {
		size, err := c.carryOut(t.queue[t.done:])
		if err != nil || size == 0 {
			panic("resp: a queued command is not one") // it was parsed when it was queued
		}
		t.done += size
	}
	if c.waiting {
		return 0, nil
	}
	c.wire = t.held.wire
	switch {
	case len(t.held.out) > execBytesMax:
		return n, c.endTransaction("ERR", fmt.Sprintf("the answers of this transaction have more than %d bytes: send a pipeline without MULTI", execBytesMax))
	case t.elsewhere != nil:
		c.transaction = nil
		c.wire.SetBuffered(append(c.wire.Buffered(), t.elsewhere...))
		return n, nil
	}
	c.transaction = nil
	r := reply{b: c.wire.Buffered()}
	r.array(t.commands)
	c.wire.SetBuffered(append(slices.Grow(r.b, len(t.held.out)), t.held.out...))
	return n, nil
}

// endTransaction answers EXEC with an error.
func (c *conn) endTransaction(word, text string) error {
	c.transaction = nil
	r := reply{b: c.wire.Buffered()}
	r.fault(word, text)
	c.wire.SetBuffered(r.b)
	return nil
}

// redirect notes that a queued command cannot be answered by this node, for which it has that answer. Redis answers EXEC
// itself with the redirect then, and cluster clients rely on it.
func (t *transaction) redirect(e *isotone.Error, answer []byte) {
	if e.Code == isotone.CodeNotLeader || e.Code == isotone.CodeNoLeader {
		t.elsewhere = answer
	}
}

func (c *conn) runMulti(_ [][]byte, r *reply) error {
	if c.transaction != nil {
		r.fault("ERR", "MULTI calls can not be nested")
		return nil
	}
	c.transaction = &transaction{}
	r.ok()
	return nil
}

// runExec answers an EXEC without MULTI; collect runs the others.
func (c *conn) runExec(_ [][]byte, r *reply) error {
	r.fault("ERR", "EXEC without MULTI")
	return nil
}

func (c *conn) runDiscard(_ [][]byte, r *reply) error {
	if c.transaction == nil {
		r.fault("ERR", "DISCARD without MULTI")
		return nil
	}
	c.transaction = nil
	r.ok()
	return nil
}

// runWatch accepts any keys: there are none, so none changes before EXEC.
func (c *conn) runWatch(_ [][]byte, r *reply) error {
	if c.transaction != nil {
		r.fault("ERR", "WATCH inside MULTI is not allowed")
		return nil
	}
	r.ok()
	return nil
}
