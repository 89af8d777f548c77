package resp

import (
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// idsMax bounds the ids of one command: 360 KiB, about what the loop buffers for a client
// that does not read.
const idsMax = 16384

// idReplyMax is the length of the largest id as an integer.
const idReplyMax = len(":9223372036854775807\r\n")

// runSnowflake answers SNOWFLAKE [count]. It never redirects: every node makes ids.
func (c *conn) runSnowflake(args [][]byte, r *reply) error {
	code := codeOK
	began := c.wire.Now()
	if err := c.makeIDs(args, r); err != nil {
		e := faultOf(err)
		r.b = appendFault(r.b, e)
		code = string(e.Code)
	}
	c.front.observe(code, 1, c.wire.Now()-began)
	return nil
}

func (c *conn) makeIDs(args [][]byte, r *reply) error {
	n := uint64(1)
	switch {
	case c.front.cfg.IDs == nil:
		return isotone.Errorf(isotone.CodeNotFound, "no ids are made here")
	case len(args) > 2:
		return isotone.Errorf(isotone.CodeInvalidArgument, "wrong number of arguments for 'snowflake' command")
	case len(args) == 2:
		var ok bool
		if n, ok = front.ParseCount(args[1]); !ok || n > idsMax {
			return isotone.Errorf(isotone.CodeInvalidArgument, "count %.40q: want a whole number from 1 to %d", args[1], idsMax)
		}
	}
	ids := c.front.ids[:1]
	if n > 1 {
		ids = make([]snowflake.ID, n)
	}
	if err := c.front.cfg.IDs.Fill(ids); err != nil {
		return err
	}
	if len(args) == 2 {
		r.array(len(ids))
	}
	r.b = slices.Grow(r.b, len(ids)*idReplyMax)
	for _, id := range ids {
		r.integer(int64(id))
	}
	return nil
}
