package resp

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has FRONTIER.

// frontierUsage is the error for an invalid FRONTIER command.
const frontierUsage = "want FRONTIER TAKE group [count] [AHEAD] [U64], FRONTIER LOW|DOUBT|SEALED group stamp, FRONTIER GET group, FRONTIER WAIT group stamp [ms], or FRONTIER BLOCKERS group"

// runFrontier is FRONTIER: what SESSION KEEP says of one group, or a watch of its frontier.
func (c *conn) runFrontier(args [][]byte, r *reply) error {
	switch subcommand(args) {
	case "BLOCKERS":
		q := &front.SessionWatch{Blockers: true}
		err := badFrontier()
		if len(args) == 3 && len(args[2]) > 0 {
			q.Group = string(args[2])
			err = c.session.RequireName(q.Group)
		}
		c.watch(q, func(r *reply) { r.blockers(q.Blocked) }, err, r)
		return nil
	case "GET", "WAIT":
		q, err := parseFrontierWatch(args)
		if err == nil {
			err = c.session.RequireName(q.Group)
		}
		c.watch(q, func(r *reply) { r.bulk(q.Frontier.String()) }, err, r)
		return nil
	}
	q, err := parseFrontier(args)
	if err == nil {
		err = c.session.RequireName(groupsOf(q)...)
	}
	c.ask(q, func(r *reply) { c.answerSession(q, r) }, err, r)
	return nil
}

func badFrontier() error { return isotone.Errorf(isotone.CodeInvalidArgument, "%s", frontierUsage) }

// parseFrontier reads a command that needs a session.
func parseFrontier(args [][]byte) (q *front.SessionRequest, err error) {
	q = &front.SessionRequest{}
	if len(args) < 3 || len(args[2]) == 0 {
		return q, badFrontier()
	}
	if list := saidOf(q, args[1]); list != nil {
		if len(args) != 4 {
			return q, badFrontier()
		}
		stamp, err := parsePast(args[3])
		*list = []session.GroupStamp{{Group: string(args[2]), Stamp: stamp}}
		return q, err
	}
	rest := args[3:]
	if len(rest) == 0 || is(rest[0], "AHEAD") || is(rest[0], "U64") {
		rest = append([][]byte{[]byte("1")}, rest...)
	}
	if !is(args[1], "TAKE") {
		return q, badFrontier()
	}
	if rest, err = parseTake(q, args[2], rest); err == nil && len(rest) > 0 {
		err = badFrontier()
	}
	return q, err
}

// parseFrontierWatch reads a command that needs no session.
func parseFrontierWatch(args [][]byte) (q *front.SessionWatch, err error) {
	waits := is(args[1], "WAIT")
	if q = (&front.SessionWatch{}); len(args) < 3 || len(args[2]) == 0 || !waits && len(args) > 3 || waits && len(args) != 4 && len(args) != 5 {
		return q, badFrontier()
	}
	if q.Group = string(args[2]); !waits {
		return q, nil
	}
	if q.At, err = parsePast(args[3]); err != nil {
		return q, err
	}
	if q.Wait = watchWaitMax; len(args) == 5 {
		q.Wait, err = parseMillis(args[4])
		q.Wait = min(q.Wait, watchWaitMax)
	}
	return q, err
}

// blockers appends what keeps a frontier from going on.
func (r *reply) blockers(list []front.Blocker) {
	r.array(len(list))
	for _, b := range list {
		hash := ""
		if b.Session != 0 {
			hash = front.SessionHash(b.Session)
		}
		r.dict(6)
		r.bulk("session")
		r.bulk(hash)
		r.bulk("label")
		r.bulk(b.Label)
		r.bulk("low")
		r.bulk(b.Low.String())
		r.bulk("high")
		r.bulk(b.High.String())
		r.bulk("ms")
		r.integer(b.For.Milliseconds())
		r.bulk("connected")
		r.integer(int64(bit(b.Connected)))
	}
}
