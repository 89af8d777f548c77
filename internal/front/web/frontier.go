package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// frontierOps are what is posted below /frontier/GROUP/.
var frontierOps = map[string]sessionHandler{
	"take": (*handler).takeStamps, "low": (*handler).sayOfStamps, "doubt": (*handler).sayOfStamps, "sealed": (*handler).sayOfStamps,
}

// frontierInterval is the shortest time between two events of a frontier.
const frontierInterval = 20 * time.Millisecond

// serveFrontier answers requests for /frontier/GROUP, and for what is below.
func (h *handler) serveFrontier(w http.ResponseWriter, r *http.Request) string {
	return h.answerSession(w, r, &sessionEndpoint{
		methods: map[string]sessionHandler{http.MethodGet: (*handler).getFrontier, http.MethodPost: (*handler).postFrontier},
		parse: func(c *sessionCall) (err error) {
			if c.name, err = httpapi.NameIn(c.URL, httpapi.FrontierPath, "group"); err == nil && c.Method == http.MethodPost {
				err = c.parseOp()
			}
			return err
		},
		stream: (*handler).streamFrontier,
	})
}

// parseOp reads the last part of a path.
func (c *sessionCall) parseOp() error {
	at := strings.LastIndexByte(c.name, '/')
	op := c.name[at+1:]
	if at < 1 || frontierOps[op] == nil {
		return isotone.Errorf(isotone.CodeNotFound, "want POST %sGROUP/take, low, doubt or sealed", httpapi.FrontierPath)
	}
	c.name, c.op = c.name[:at], op
	if c.U64 && c.Count > isotone.Range64CountMax {
		return isotone.Errorf(isotone.CodeInvalidArgument, "n=%d: want at most %d with u64", c.Count, isotone.Range64CountMax)
	}
	if op != opTake && c.Stamp == (isotone.Timestamp{}) {
		return isotone.Errorf(isotone.CodeInvalidArgument, "stamp: name one, as &stamp=HEX")
	}
	return c.needsSession()
}

const opTake = "take"

// stamps returns how many are asked for.
func (c *sessionCall) stamps() uint64 {
	if c.op == opTake {
		return c.Count
	}
	return 0
}

func (h *handler) postFrontier(c *sessionCall) (any, error) { return frontierOps[c.op](h, c) }

// takeStamps answers with stamps for writes in a group.
func (h *handler) takeStamps(c *sessionCall) (any, error) {
	r := &front.SessionRequest{Request: session.Request{Group: c.name, Ahead: c.Ahead}, Count: c.Count, U64: c.U64}
	if _, err := h.say(c, r); err != nil {
		return nil, err
	}
	a := httpapi.StampsOf(c.name, r.Range, c.U64)
	if c.Ahead {
		a.Bound = r.Reply.Bound.String()
	}
	return a, nil
}

// sayOfStamps has the leader know what is decided, in doubt, or sealed.
func (h *handler) sayOfStamps(c *sessionCall) (any, error) {
	r, said := &front.SessionRequest{}, []session.GroupStamp{{Group: c.name, Stamp: c.Stamp}}
	switch c.op {
	case "low":
		r.Lows = said
	case "doubt":
		r.Doubts = said
	case "sealed":
		r.Sealed = said
	}
	v, err := h.say(c, r)
	if err != nil {
		return nil, err
	}
	if c.op == "sealed" {
		v.sealed(c.name, c.Stamp)
	}
	return newsOf(v), nil
}

// getFrontier tells the frontier of a group, once it is at c.Min if it waits.
func (h *handler) getFrontier(c *sessionCall) (any, error) {
	seen, err := h.watch(c.Context(), front.SessionWatch{Group: c.name, At: c.Min}, c.Wait, func(w *front.SessionWatch) bool { return !w.Frontier.Before(c.Min) })
	if err != nil {
		return nil, err
	}
	return httpapi.FrontierAnswer{Group: c.name, Frontier: seen.Frontier.String()}, nil
}

// streamFrontier tells the frontier of a group each time that it has grown.
func (h *handler) streamFrontier(c *sessionCall, s *eventStream) error {
	w, wait := front.SessionWatch{Group: c.name}, time.Duration(0)
	for {
		seen, err := h.watch(s.ctx, w, wait, func(seen *front.SessionWatch) bool { return !seen.Frontier.Before(w.At) })
		if err != nil {
			return err
		}
		if seen.Frontier.Before(w.At) {
			err = s.comment()
		} else {
			err = s.send("frontier", httpapi.FrontierAnswer{Group: c.name, Frontier: seen.Frontier.String()})
			w.At = front.Above(seen.Frontier)
		}
		if err == nil {
			err = s.pause(frontierInterval)
		}
		if err != nil {
			return err
		}
		wait = eventsPause
	}
}
