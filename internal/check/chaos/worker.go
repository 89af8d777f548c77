//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// worker sends one request after the other.
type worker struct {
	load  *Load
	id    int
	addr  string // whom it asks
	conns map[string]*Conn

	mu        sync.Mutex
	history   []lincheck.Operation
	truncated bool
}

func (w *worker) run() {
	defer func() {
		for _, c := range w.conns {
			_ = c.Close()
		}
	}()
	for !w.load.stopped() {
		wait := w.load.opt.Pause
		if !w.request() {
			wait = jitter()
		}
		select {
		case <-w.load.quit:
		case <-time.After(wait):
		}
	}
}

// request sends one request and reports whether the next one may follow without
// backing off.
func (w *worker) request() bool {
	conn, err := w.conn()
	if err != nil {
		w.load.count(outcomeOf(err))
		w.next()
		return false
	}
	floor := w.load.online.Begin()
	op := lincheck.Operation{Client: uint64(w.id), Invocation: int64(w.load.now())}
	answer, err := conn.Get(w.target(), w.timeout())
	op.Completion = int64(w.load.now())
	if err != nil {
		w.record(op)
		w.load.count(outcomeOf(err))
		w.drop()
		w.next()
		return false
	}
	if answer.Header.Get("Connection") == "close" {
		w.drop()
	}
	if answer.Status == 200 {
		w.succeeded(floor, op, answer)
		return true
	}
	w.record(op)
	return w.failed(answer)
}

func (w *worker) succeeded(floor isotone.Timestamp, op lincheck.Operation, answer *Answer) {
	var err error
	if op.Range, err = answer.Range(); err != nil {
		w.load.fault("%s answered 200 with %v", w.addr, err)
		return
	}
	op.Answered = true
	w.record(op)
	if err := w.load.online.End(floor, op.Range); err != nil {
		w.load.fault("%s: %v", w.addr, err)
	}
	w.load.succeeded(w.addr, w.query(), time.Duration(op.Invocation), time.Duration(op.Completion))
}

// failed deals with an error answer and reports whether to go on at once.
func (w *worker) failed(answer *Answer) bool {
	code := answer.Code()
	switch {
	case answer.Status == 409 && code == isotone.CodeNotLeader:
		w.load.count(string(code))
		leader := answer.Header.Get("Isotone-Leader")
		if !slices.Contains(w.load.opt.Addrs, leader) {
			w.load.fault("%s names %q as the leader", w.addr, leader)
			w.next()
			return false
		}
		w.addr = leader
		return true
	case answer.Status == 503 && (code == isotone.CodeNoLeader || code == isotone.CodeOverloaded),
		answer.Status == 504 && code == isotone.CodeDeadlineExceeded,
		answer.Status == 500 && code == isotone.CodeInternal && w.load.opt.NodesMayFail:
		w.load.count(string(code))
		w.next()
		return false
	}
	w.load.fault("%s answered %d %q", w.addr, answer.Status, answer.Body)
	w.next()
	return false
}

// target asks for one timestamp from even workers, for a few from odd ones.
func (w *worker) target() string {
	count := 1
	if w.id%2 == 1 {
		count = 1 + w.id
	}
	return fmt.Sprintf("/timestamp?n=%d%s", count, w.query())
}

func (w *worker) timeout() time.Duration {
	if impatient := w.load.opt.ShortTimeout; impatient > 0 && w.id/4%2 == 1 {
		return impatient
	}
	return w.load.opt.Timeout
}

func (w *worker) query() string {
	if queries := w.load.opt.Queries; len(queries) > 0 {
		return queries[w.id/2%len(queries)]
	}
	return w.load.opt.Query
}

func (w *worker) record(op lincheck.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.history) >= operationsMax/w.load.opt.Workers {
		w.truncated = true
		return
	}
	w.history = append(w.history, op)
}

func (w *worker) conn() (*Conn, error) {
	if c := w.conns[w.addr]; c != nil {
		return c, nil
	}
	c, err := Dial(w.addr, w.timeout())
	if err != nil {
		return nil, err
	}
	w.conns[w.addr] = c
	return c, nil
}

func (w *worker) drop() {
	_ = w.conns[w.addr].Close()
	delete(w.conns, w.addr)
}

// next moves on to the next node.
func (w *worker) next() {
	addrs := w.load.opt.Addrs
	w.addr = addrs[(slices.Index(addrs, w.addr)+1)%len(addrs)]
}

func outcomeOf(err error) string {
	var n net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout() {
		return "timeout"
	}
	return "connection"
}
