package sim

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Requests over HTTP and their answers: lost, late, and given up.

// httpCall is a request of a user. It is over once the user does not wait for an answer. left is what a node does then, once it notices.
type httpCall struct {
	session session.ID
	target  *node
	sent    time.Duration
	over    bool
	left    func()
}

// callHTTP sends a request to the target of a user, who waits for wait and some time more. heard is called with the answer, or with an error of code internal.
func (w *world) callHTTP(u *httpUser, wait time.Duration, serve func(*node, *httpCall, func(httpAnswer)), heard func(*httpCall, httpAnswer)) {
	rng := w.sessions.http.rng
	if u.target == nil {
		u.target = w.nodes[rng.IntN(len(w.nodes))]
		if l := w.leader(); l != nil && rng.IntN(2) == 0 {
			u.target = l
		}
	}
	n := u.target
	k := &httpCall{session: u.id, target: n, sent: u.time(w)}
	u.calls++
	end := func(a httpAnswer) {
		if k.over {
			return
		}
		w.trace("%v hears from node %d: %v", u, n.id, a)
		k.over = true
		u.calls--
		if heard(k, a); k.session == u.id {
			w.note('h', uint64(u.number), uint64(a.token))
			w.heardHTTP(u, a)
			w.checkBelief(u)
		}
	}
	w.carryHTTP(n, func() {
		serve(n, k, func(a httpAnswer) { w.carryHTTP(nil, func() { end(a) }) })
	})
	patience := wait + time.Duration(1+rng.Int64N(int64(20*w.cfg.tick)))
	if rng.IntN(4) == 0 { // it goes away
		patience = time.Duration(1 + rng.Int64N(int64(patience)))
	}
	w.after(patience, func() {
		if k.over {
			return
		}
		end(httpAnswer{err: errConnectionLost})
		if rng.IntN(4) > 0 { // the node notices
			w.after(w.httpTransit(), func() {
				if k.left != nil {
					k.left()
				}
			})
		}
	})
}

// carryHTTP has something arrive, at a node if that runs, or not.
func (w *world) carryHTTP(n *node, do func()) {
	if !w.quiet && w.sessions.http.rng.IntN(20) == 0 {
		return
	}
	w.after(w.httpTransit(), func() {
		switch {
		case n == nil:
			do()
		case n.paused:
			w.carryHTTP(n, do)
		case n.up():
			do()
		}
	})
}

func (w *world) httpTransit() time.Duration {
	rng := w.sessions.http.rng
	d := 20*time.Microsecond + time.Duration(rng.Int64N(int64(time.Millisecond)))
	if rng.IntN(30) == 0 {
		d += time.Duration(rng.Int64N(int64(10 * w.cfg.tick)))
	}
	return d
}

// httpTurn is how long it takes until another goroutine of a process does its part.
func (w *world) httpTurn() time.Duration {
	rng := w.sessions.http.rng
	if rng.IntN(8) == 0 {
		return time.Duration(rng.Int64N(int64(2 * w.cfg.tick)))
	}
	return time.Duration(rng.Int64N(int64(200 * time.Microsecond)))
}

// heardHTTP does what a user does after any answer.
func (w *world) heardHTTP(u *httpUser, a httpAnswer) {
	if a.err == nil {
		u.answered = true
		w.stats.SessionAnswers++
		return
	}
	switch a.err.Code {
	case isotone.CodeLocked:
		u.answered = true
	case isotone.CodeSessionExpired:
		w.stats.SessionsExpired++
		w.renewHTTP(u)
	case isotone.CodeNotBound:
		u.bound = false
	case isotone.CodeNotLeader, isotone.CodeNoLeader:
		u.bound, u.target = false, nil
		for _, o := range w.nodes {
			if a.err.Leader != "" && w.clientAddr(o) == a.err.Leader {
				u.target = o
			}
		}
	case isotone.CodeInternal: // no answer
		u.doubts = true
		if w.sessions.http.rng.IntN(4) == 0 {
			u.target = nil
		}
	}
}
