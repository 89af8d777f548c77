package resp

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has FRONTIER.

const frontierUsage = "want FRONTIER TAKE group [count] [AHEAD] [U64], FRONTIER LOW|DOUBT|SEALED group stamp, FRONTIER GET group, or FRONTIER WAIT group stamp [ms]"

// runFrontier is FRONTIER.
func (c *conn) runFrontier(args [][]byte, r *reply) error {
	a := &asking{reply: replyOK}
	err := parseFrontier(a, args)
	c.ask(a, err, r)
	return nil
}

func parseFrontier(a *asking, args [][]byte) (err error) {
	if len(args) < 3 || len(args[2]) == 0 {
		return errUsage(frontierUsage)
	}
	group, rest, said := string(args[2]), args[3:], []session.GroupStamp(nil)
	sub := subcommand(args)
	if sub == "LOW" || sub == "DOUBT" || sub == "SEALED" {
		if len(rest) != 1 {
			return errUsage(frontierUsage)
		}
		said = []session.GroupStamp{{Group: group}}
		said[0].Stamp, err = parseStamp(rest[0])
	}
	switch sub {
	case "TAKE":
		a.reply = replyTake
		return parseTake(&a.request, args[2:], false)
	case "LOW":
		a.request.Lows = said
	case "DOUBT":
		a.request.Doubts = said
	case "SEALED":
		a.request.Sealed = said
	case "GET", "WAIT":
		a.reply = replyFrontier
		a.watch = &front.SessionWatch{Group: group}
		if sub == "GET" && len(rest) > 0 || sub == "WAIT" && (len(rest) == 0 || len(rest) > 2) {
			return errUsage(frontierUsage)
		}
		if sub == "WAIT" {
			err = parseFrontierWait(a.watch, rest)
		}
	default:
		return errUsage(frontierUsage)
	}
	return err
}

// parseFrontierWait reads stamp [ms].
func parseFrontierWait(w *front.SessionWatch, args [][]byte) (err error) {
	if w.At, err = parseStamp(args[0]); err != nil {
		return err
	}
	if w.Wait = waitMax; len(args) > 1 {
		w.Wait, err = parseMillis(args[1])
		w.Wait = min(w.Wait, waitMax)
	}
	return err
}

// parseTake reads group count [AHEAD] [U64]. The count may be left out unless it is required.
func parseTake(q *front.SessionRequest, args [][]byte, required bool) error {
	if len(args) == 0 || len(args[0]) == 0 || required && len(args) < 2 {
		return errUsage(frontierUsage)
	}
	q.Group, q.Count = string(args[0]), 1
	for i, arg := range args[1:] {
		n, isCount := front.ParseCount(arg)
		switch {
		case i == 0 && isCount:
			q.Count = n
		case i == 0 && required:
			return errUsage(sessionUsage)
		case is(arg, "AHEAD") && !q.Ahead:
			q.Ahead = true
		case is(arg, "U64") && !q.U64:
			q.U64 = true
		default:
			return errUsage(frontierUsage)
		}
	}
	most := uint64(isotone.RangeCountMax)
	if q.U64 {
		most = isotone.Range64CountMax
	}
	if q.Count > most {
		return isotone.Errorf(isotone.CodeInvalidArgument, "count %d: want 1 to %d", q.Count, most)
	}
	return nil
}

// replyTake appends the first and the last stamp, and the bound of those that the session may make itself.
func replyTake(a *asking, r *reply) {
	q := &a.request
	last := isotone.Timestamp{Time: q.Range.First.Time, Index: q.Range.First.Index + q.Range.Count - 1}
	if q.U64 {
		last = (isotone.Timestamp64From(q.Range.First) + isotone.Timestamp64(q.Range.Count-1)).Timestamp()
	}
	n := 2
	if q.Ahead {
		n++
	}
	r.array(n)
	r.stamp(q.Range.First)
	r.stamp(last)
	if q.Ahead {
		r.stamp(q.Reply.Bound)
	}
}

func replyFrontier(a *asking, r *reply) { r.stamp(a.watch.Frontier) }
