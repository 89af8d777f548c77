package web

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

var errBook = errors.New("refused")

// reader plays a story to a lockBook about the lock "x", and collects what it decides.
type reader struct {
	lockBook
	requests map[string]*lockWait
	releases map[isotone.Timestamp64]*giving
	heard    []string
}

func (r *reader) says(s string) { r.heard = append(r.heard, s) }

func (r *reader) asks(q *session.LockRequest) {
	switch {
	case q == nil:
		r.says("-")
	case q.Op == session.LockCancel:
		r.says("cancel")
	case q.Op == session.LockRelease:
		r.releases[q.Token] = r.giving[q.Token]
		r.says(fmt.Sprint("release ", uint64(q.Token)))
	}
}

func (r *reader) unwanted(token isotone.Timestamp64, unwanted bool) {
	if unwanted {
		r.asks(r.give("x", token, false))
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
	w := r.requests[who]
	switch verb {
	case "wait":
		r.requests[who] = r.begin("x")
	case "granted":
		r.unwanted(token, r.granted("x", token))
	case "answered":
		r.unwanted(r.answered(w, holds, nil))
	case "refused":
		r.answered(w, nil, errBook)
	case "told":
		switch {
		case w.err != nil:
			r.says(who + " fails")
		case w.again:
			w.again = false
			r.says(who + " asks again")
		case r.tell(w):
			r.says(fmt.Sprint(who, " has ", uint64(w.token)))
		default:
			r.says(who + " waits")
		}
	case "leaves":
		r.asks(r.leave(w))
	case "shows":
		r.says(fmt.Sprint(r.shown(holds)))
	case "release":
		if q := r.release("x", token); q != nil {
			r.asks(q)
		} else {
			r.says("not held")
		}
	case "released":
		r.released("x", token)
	case "unreleased":
		r.releaseAnswered("x", token, errBook)
	case "done":
		select {
		case err := <-r.releases[token].done:
			r.says(fmt.Sprint(err))
		default:
			r.says("not done")
		}
	case "closes":
		r.close(errBook)
	}
}

func TestLockBook(t *testing.T) {
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
		"it asks again if the answer shows only that":                    {"wait a, leaves a, granted 7, wait b, answered b 7, told b, told b", "cancel, release 7, b asks again, b waits"},
		"a client releases what it holds":                                {"shows 7, release 7, done 7, released 7, done 7", "[{x 7}], release 7, not done, <nil>"},
		"a client releases no other token, and none twice":               {"shows 7, release 8, release 7, release 7", "[{x 7}], not held, release 7, not held"},
		"a release that failed can be repeated":                          {"shows 7, release 7, unreleased 7, done 7, release 7", "[{x 7}], release 7, refused, release 7"},
		"a lock that is released while a request is told of it":          {"wait a, granted 7, shows 7, release 7, answered a, told a, told a", "[{x 7}], release 7, a asks again, a waits"},
		"a lock that was released by others":                             {"shows 7, released 7, release 7", "[{x 7}], not held"},
		"what is not shown any more is not held":                         {"shows 7, shows, release 7", "[{x 7}], [], not held"},
		"a refused request":                                              {"wait a, refused a, told a, leaves a", "a fails, cancel"},
		"the end of the session":                                         {"shows 7, wait a, release 7, closes, told a, done 7", "[{x 7}], release 7, a fails, refused"},
	} {
		t.Run(what, func(t *testing.T) {
			r := &reader{lockBook: newLockBook(), requests: map[string]*lockWait{}, releases: map[isotone.Timestamp64]*giving{}}
			for step := range strings.SplitSeq(story.steps, ", ") {
				r.play(step)
			}
			if got := strings.Join(r.heard, ", "); got != story.want {
				t.Errorf("%s:\n got %s\nwant %s", story.steps, got, story.want)
			}
			n := 0
			for _, name := range slices.Collect(maps.Keys(r.waiting)) {
				n += len(r.waiting[name])
			}
			if n != r.waits {
				t.Errorf("%d requests wait, and %d are counted", n, r.waits)
			}
		})
	}
}

// TestValidFor_IsNoLongerThanTheLeaderWaits, if the clocks of both are wrong by a tenth, in the worst direction.
func TestValidFor_IsNoLongerThanTheLeaderWaits(t *testing.T) {
	for _, ttl := range []float64{100, 3000, 60_000} {
		for _, alive := range []float64{0, 1, 700, 30_000} { // by the leader's clock, which is fast
			const ms = 1e6
			believes := float64(validFor(ms*time.Duration(ttl), ms*time.Duration(alive))) / ms / 0.9 // by a clock that is slow
			waits := alive/1.1 + ttl*11/9/1.1
			if believes > waits*(1+1e-9) || believes < 0.99*waits {
				t.Errorf("ttl %v, alive %v: it believes for %v ms, and the leader waits for %v ms", ttl, alive, believes, waits)
			}
		}
	}
}
