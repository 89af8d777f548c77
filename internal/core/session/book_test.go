package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

var errBook = errors.New("refused")

// reader plays a story to a Book about the lock "x", and collects what it decides.
type reader struct {
	*session.Book
	requests map[string]*request
	asks     []*session.LockAsk
	// given are the releases that the leader was asked for, and ended how those of the client have ended, by token.
	given map[isotone.Timestamp64]*session.LockAsk
	ended map[isotone.Timestamp64]error
	heard []string
}

// request is a request for the lock, and what the leader was asked for it first.
type request struct {
	wait  *session.LockWait
	asked *session.LockAsk
	ended bool
}

func newReader() *reader {
	r := &reader{requests: map[string]*request{}, given: map[isotone.Timestamp64]*session.LockAsk{}, ended: map[isotone.Timestamp64]error{}}
	r.Book = session.NewBook(func(a *session.LockAsk) { r.asks = append(r.asks, a) })
	return r
}

func (r *reader) says(s string) { r.heard = append(r.heard, s) }

// saysAsks tells what the leader was asked in a step, "-" for nothing.
func (r *reader) saysAsks() {
	if len(r.asks) == 0 {
		r.says("-")
	}
	for _, a := range r.asks {
		switch a.Op {
		case session.LockCancel:
			r.says("cancel")
		case session.LockRelease:
			r.given[a.Token] = a
			r.says(fmt.Sprint("release ", uint64(a.Token)))
		default:
			r.says("again")
		}
	}
	r.asks = nil
}

// hears does what may have the leader asked, and tells that if so.
func (r *reader) hears(do func()) {
	if do(); len(r.asks) > 0 {
		r.saysAsks()
	}
}

// play plays one step. a and b are requests, a number is a token.
func (r *reader) play(step string) {
	var who string
	var token isotone.Timestamp64
	verb, rest, _ := strings.Cut(step, " ")
	if n, _ := fmt.Sscanf(rest, "%d", &token); n == 0 {
		_, _ = fmt.Sscanf(rest, "%s %d", &who, &token)
	}
	var holds []session.Hold
	if token != 0 {
		holds = append(holds, session.Hold{Name: "x", Token: token})
	}
	q := r.requests[who]
	switch verb {
	case "wait", "try":
		op := session.LockAcquire
		if verb == "try" {
			op = session.LockTry
		}
		q = &request{}
		r.requests[who] = q
		q.wait = r.Acquire(session.LockRequest{Op: op, Name: "x"}, func() {})
		if len(r.asks) > 0 {
			q.asked, r.asks = r.asks[0], nil
		}
	case "granted":
		r.hears(func() { r.Told(session.Message{Kind: session.MessageGranted, Name: "x", Token: token}) })
	case "queued":
		r.Told(session.Message{Kind: session.MessageQueued, Name: "x", Ticket: isotone.Timestamp{Time: uint64(token)}})
	case "answered":
		r.hears(func() { r.Answered(q.asked, holds, nil) })
	case "refused":
		r.Answered(q.asked, nil, errBook)
	case "locked":
		r.Answered(q.asked, nil, isotone.ErrLocked)
	case "told", "over":
		end, ended := r.Look(q.wait, verb == "over")
		q.ended = ended
		switch {
		case !ended:
			r.says(who + " waits")
		case end.Err != nil:
			r.says(who + " fails")
		case end.Token != 0:
			r.says(fmt.Sprint(who, " has ", uint64(end.Token)))
		default:
			r.says(fmt.Sprint(who, " is refused, at ", end.Ticket.Time))
		}
		r.hears(func() {})
	case "leaves":
		r.Leave(q.wait)
		q.ended = true
		r.saysAsks()
	case "shows":
		r.says(fmt.Sprint(r.Shown(holds)))
	case "release":
		if r.Release("x", token, func(err error) { r.ended[token] = err }) {
			r.ended[token] = errors.New("not done")
			r.saysAsks()
		} else {
			r.says("not held")
		}
	case "released":
		r.Told(session.Message{Kind: session.MessageReleased, Name: "x", Token: token})
	case "unreleased":
		r.Answered(r.given[token], nil, errBook)
	case "done":
		r.says(fmt.Sprint(r.ended[token]))
	case "closes":
		r.Close(errBook)
	}
}

func TestBook(t *testing.T) {
	for what, story := range map[string]struct{ steps, want string }{
		"a grant is told once the session is known to live":              {"wait a, granted 7, told a, answered a, told a", "a waits, a has 7"},
		"a hold that the answer shows is told, and its grant is no news": {"wait a, answered a 7, told a, granted 7", "a has 7"},
		"a lock that the session has is told to whoever asks again":      {"wait a, granted 7, answered a, told a, wait b, answered b 7, told b, leaves b", "a has 7, b has 7, -"},
		"two requests are told of one grant":                             {"wait a, wait b, answered a, answered b, granted 7, told a, told b", "a has 7, b has 7"},
		"whoever goes waits no longer":                                   {"wait a, answered a, leaves a", "cancel"},
		"the place stays while another request waits":                    {"wait a, wait b, leaves a, leaves b", "-, cancel"},
		"a grant that crosses the end of the wait is released":           {"wait a, leaves a, granted 7, released 7", "cancel, release 7"},
		"an answer that crosses it, too":                                 {"wait a, leaves a, answered a 7, granted 7", "cancel, release 7"},
		"a grant of which the client was not told":                       {"wait a, granted 7, leaves a", "release 7"},
		"a grant of which another request was told stays":                {"wait a, wait b, granted 7, answered a, told a, leaves b", "a has 7, -"},
		"a grant that was shown stays":                                   {"wait a, granted 7, shows 7, leaves a", "[{x 7}], -"},
		"a grant that was shown before its message stays":                {"wait a, leaves a, shows 7, granted 7", "cancel, [{x 7}]"},
		"no answer shows what is being released":                         {"wait a, leaves a, granted 7, shows 7, released 7, shows", "cancel, release 7, [], []"},
		"a release that failed is shown again":                           {"wait a, leaves a, granted 7, unreleased 7, shows 7", "cancel, release 7, [{x 7}]"},
		"a new wait is not told of what is being released":               {"wait a, leaves a, granted 7, wait b, granted 7, answered b, told b, granted 8, told b", "cancel, release 7, b waits, b has 8"},
		"it asks again if the answer shows only that":                    {"wait a, leaves a, granted 7, wait b, answered b 7, told b", "cancel, release 7, again, b waits"},
		"a client releases what it holds":                                {"shows 7, release 7, done 7, released 7, done 7", "[{x 7}], release 7, not done, <nil>"},
		"a client releases no other token, and none twice":               {"shows 7, release 8, release 7, release 7", "[{x 7}], not held, release 7, not held"},
		"a release that failed can be repeated":                          {"shows 7, release 7, unreleased 7, done 7, release 7", "[{x 7}], release 7, refused, release 7"},
		"a lock that is released while a request is told of it":          {"wait a, granted 7, shows 7, release 7, answered a, told a", "[{x 7}], release 7, again, a waits"},
		"a lock that was released by others":                             {"shows 7, released 7, release 7", "[{x 7}], not held"},
		"what is not shown any more is not held":                         {"shows 7, shows, release 7", "[{x 7}], [], not held"},
		"a lock that somebody else has is not waited for":                {"try a, locked a, told a", "a is refused, at 0"},
		"nor one for which the session waits":                            {"wait a, try b, told b, leaves a", "b is refused, at 0, cancel"},
		"whoever has waited is told of its place":                        {"wait a, over a, answered a, over a, queued 3, over a", "a waits, a waits, a is refused, at 3, cancel"},
		"a grant is not lost on a request that came later":               {"wait a, granted 7, wait b, leaves a, refused b, told b", "-, b fails, release 7"},
		"a release that crosses the answer":                              {"wait a, granted 7, leaves a, wait b, answered b, answered a 7, told b", "release 7, b waits"},
		"a refused request":                                              {"wait a, refused a, told a", "a fails, cancel"},
		"the end of the session":                                         {"shows 7, wait a, release 7, closes, told a, done 7", "[{x 7}], release 7, a fails, cancel, refused"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newReader()
			for step := range strings.SplitSeq(story.steps, ", ") {
				r.play(step)
			}
			if got := strings.Join(r.heard, ", "); got != story.want {
				t.Errorf("%s:\n got %s\nwant %s", story.steps, got, story.want)
			}
			n := 0
			for _, q := range r.requests {
				if !q.ended {
					n++
				}
			}
			if n != r.Waits() {
				t.Errorf("%d requests wait, and %d are counted", n, r.Waits())
			}
		})
	}
}

// TestValidFor_IsNoLongerThanTheLeaderWaits, if the clocks of both are wrong by a tenth, in the worst direction.
func TestValidFor_IsNoLongerThanTheLeaderWaits(t *testing.T) {
	for _, ttl := range []float64{100, 3000, 60_000} {
		for _, alive := range []float64{0, 1, 700, 30_000} { // by the leader's clock, which is fast
			const ms = 1e6
			believes := float64(session.ValidFor(ms*time.Duration(ttl), ms*time.Duration(alive))) / ms / 0.9 // by a clock that is slow
			waits := alive/1.1 + ttl*11/9/1.1
			if believes > waits*(1+1e-9) || believes < 0.99*waits {
				t.Errorf("ttl %v, alive %v: it believes for %v ms, and the leader waits for %v ms", ttl, alive, believes, waits)
			}
		}
	}
}
