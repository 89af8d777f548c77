package http1

import (
	"strconv"

	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/snowflake"
)

// idDigits is the usual length of an id: that of all ids made since May 2018 with Twitter's
// layout and epoch.
const idDigits = 19

// appendIDs appends the answer to a request for ids, and returns its code.
func (a *answers) appendIDs(b []byte, r *request, query []byte, front *Front) (_ []byte, code string) {
	ids := front.ids[:r.count]
	if err := front.cfg.IDs.Fill(ids); err != nil {
		f := httpapi.FaultOf(err)
		return a.spellFault(b, &f, targetIDs, query, false), string(f.Code)
	}
	return a.appendMade(b, r, ids), httpapi.CodeOK
}

func (a *answers) appendMade(b []byte, r *request, ids []snowflake.ID) []byte {
	if r.count == 1 && r.format != httpapi.JSON {
		at := len(b)
		b = strconv.AppendInt(append(b, a.id...), int64(ids[0]), 10)
		if len(b)-at == len(a.id)+idDigits {
			return b
		}
		b = b[:at]
	}
	q := httpapi.IDQuery{Count: len(ids), JSON: r.format == httpapi.JSON}
	a.body = q.AppendIDs(a.body[:0], ids)
	b = a.appendHeader(b, len(a.body), q.ContentType(), false)
	b = append(b, "\r\n"...)
	return append(b, a.body...)
}
