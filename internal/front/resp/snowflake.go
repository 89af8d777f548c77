package resp

import (
	"bytes"
	"slices"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	tracing "github.com/isotone/isotone/internal/front/requestid" // a transaction here is that of MULTI
	"github.com/isotone/isotone/snowflake"
)

// idsMax bounds the ids of one command: 360 KiB as integers and 420 KiB as strings, about what
// the loop buffers for a client that does not read.
const idsMax = 16384

// idReplyMax is the length of the largest id as a string.
const idReplyMax = len("$19\r\n9223372036854775807\r\n")

// roundingLibraries are the client libraries that turn integers into numbers of JavaScript,
// which are exact up to 2^53 only, by the names that they announce with CLIENT SETINFO.
var roundingLibraries = []string{"ioredis", "iovalkey", "node-redis"}

// rounds reports whether the library of that name, which may have a tag in parentheses,
// rounds integers.
func rounds(library []byte) bool {
	name, _, _ := bytes.Cut(library, []byte("("))
	return slices.Contains(roundingLibraries, string(name))
}

// idRequest is what a SNOWFLAKE command asks for.
type idRequest struct {
	n    uint64
	list bool // answer with an array, even of one
	text bool // answer with strings
}

// runSnowflake answers SNOWFLAKE [count] [AS STRING|INTEGER] [TRACEPARENT value]. It never
// redirects: every node makes ids.
func (c *conn) runSnowflake(args [][]byte, r *reply) error {
	code := codeOK
	began := c.wire.Now()
	args, parent, err := cutTraceparent(args)
	span := c.front.trace("SNOWFLAKE", parent)
	if err == nil {
		err = c.makeIDs(args, r)
	}
	if err != nil {
		e := faultOf(err)
		r.b = appendFault(r.b, e)
		code = string(e.Code)
	}
	c.front.observe(code, 1, c.wire.Now()-began)
	c.front.endTrace(span, code, 1)
	return nil
}

// cutTraceparent returns the arguments without TRACEPARENT and its value at their end.
func cutTraceparent(args [][]byte) (rest [][]byte, parent tracing.Trace, err error) {
	at := len(args) - 2
	if at < 1 || !is(args[at], "TRACEPARENT") {
		return args, parent, nil
	}
	parent, err = parseTraceparent(args[at+1])
	return args[:at], parent, err
}

func (c *conn) makeIDs(args [][]byte, r *reply) error {
	if c.front.cfg.IDs == nil {
		return isotone.Errorf(isotone.CodeNotFound, "no ids are made here")
	}
	q := idRequest{n: 1, text: c.textIDs}
	if err := q.parse(args[1:]); err != nil {
		return err
	}
	if err := c.session.Take(1, q.n); err != nil {
		return err
	}
	ids := c.front.ids[:1]
	if q.n > 1 {
		ids = make([]snowflake.ID, q.n)
	}
	if err := c.front.cfg.IDs.Fill(ids); err != nil {
		return err
	}
	if q.list {
		r.array(len(ids))
	}
	r.b = slices.Grow(r.b, len(ids)*idReplyMax)
	for _, id := range ids {
		if q.text {
			r.decimal(int64(id))
		} else {
			r.integer(int64(id))
		}
	}
	return nil
}

// parse reads [count] [AS STRING|INTEGER]; what is missing leaves q as it is. Its errors match
// isotone.ErrInvalidArgument.
func (q *idRequest) parse(args [][]byte) error {
	if len(args)%2 == 1 { // a count, since the option has two words
		var ok bool
		if q.n, ok = front.ParseCount(args[0]); !ok || q.n > idsMax {
			return isotone.Errorf(isotone.CodeInvalidArgument, "count %.40q: want a whole number from 1 to %d", args[0], idsMax)
		}
		q.list, args = true, args[1:]
	}
	switch {
	case len(args) == 0:
	case len(args) != 2, !strings.EqualFold(string(args[0]), "AS"):
		return isotone.Errorf(isotone.CodeInvalidArgument, "wrong number of arguments for 'snowflake' command: want SNOWFLAKE [count] [AS STRING|INTEGER]")
	case strings.EqualFold(string(args[1]), "STRING"):
		q.text = true
	case strings.EqualFold(string(args[1]), "INTEGER"):
		q.text = false
	default:
		return isotone.Errorf(isotone.CodeInvalidArgument, "AS %.40q: want STRING or INTEGER", args[1])
	}
	return nil
}
