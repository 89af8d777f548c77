package node

import (
	"context"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
)

// messagesMax bounds the messages from peers that wait for the loop. A connection
// that brings more is not read until there is room, and TCP holds its sender back.
const messagesMax = 4096

// mailbox is how other goroutines reach the loop. Everything that arrives between
// two turns is taken at once, under one lock.
type mailbox struct {
	// wake makes the loop take what is there. It may be called at any time.
	wake func()

	mu     sync.Mutex
	room   sync.Cond // messages were taken, or the mailbox was closed
	in     mail
	closed bool
}

// mail is what the loop takes in one turn. The loop hands it back for use again.
type mail struct {
	messages  []*raftpb.Message
	persisted *replica.Write  // nil: none; there is never a second one
	hellos    []replica.Hello // at most one for each connection
	calls     []func()        // at most one for each handshake and command
}

func newMailbox(wake func()) *mailbox {
	m := &mailbox{wake: wake}
	m.room.L = &m.mu
	return m
}

// take swaps what has arrived for an emptied mail.
func (m *mailbox) take(spare mail) mail {
	m.mu.Lock()
	got := m.in
	m.in = spare
	m.mu.Unlock()
	if len(got.messages) > 0 {
		m.room.Broadcast()
	}
	return got
}

// emptied returns d with all slices empty, ready to be filled again.
func (d mail) emptied() mail {
	clear(d.messages)
	clear(d.calls)
	return mail{messages: d.messages[:0], hellos: d.hellos[:0], calls: d.calls[:0]}
}

// post changes the mail under the lock and wakes the loop. It reports whether the
// mailbox was still open.
func (m *mailbox) post(put func(*mail)) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	put(&m.in)
	m.mu.Unlock()
	m.wake()
	return true
}

// deliver takes messages in, and waits while there are too many, until ctx is done.
func (m *mailbox) deliver(ctx context.Context, msgs []*raftpb.Message) {
	m.mu.Lock()
	if len(m.in.messages) >= messagesMax {
		defer context.AfterFunc(ctx, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.room.Broadcast()
		})()
	}
	for len(m.in.messages) >= messagesMax && !m.closed && ctx.Err() == nil {
		m.room.Wait()
	}
	if !m.closed {
		m.in.messages = append(m.in.messages, msgs...)
	}
	m.mu.Unlock()
	m.wake()
}

// close lets nothing more in and returns what was not taken.
func (m *mailbox) close() mail {
	m.mu.Lock()
	m.closed = true
	rest := m.in
	m.in = mail{}
	m.mu.Unlock()
	m.room.Broadcast()
	return rest
}
