package web

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/snowflake"
)

const (
	smallIDs = 256 // capacity of a pooled list
	// largeIDsMax bounds the concurrent answers with more ids: 2 MB each.
	largeIDsMax = 64
)

var idLists = sync.Pool{New: func() any { return new([smallIDs]snowflake.ID) }}

// snowflake answers GET /api/snowflake. Only valid requests reach the generator.
func (h *handler) snowflake(w http.ResponseWriter, r *http.Request) string {
	q, err := httpapi.ParseIDQuery(r.URL.RawQuery)
	if err != nil {
		return fail(w, r, err)
	}
	q = q.Accepting(r.Header["Accept"]...)
	s := sessionOf(r.Context())
	if err := s.Take(1, uint64(q.Count)); err != nil {
		return refuse(w, r, s, err)
	}
	list := idLists.Get().(*[smallIDs]snowflake.ID)
	defer idLists.Put(list)
	ids := list[:]
	if q.Count > len(ids) {
		defer h.largeIDs.Add(-1)
		if h.largeIDs.Add(1) > largeIDsMax {
			return fail(w, r, isotone.ErrOverloaded)
		}
		ids = make([]snowflake.ID, q.Count)
	}
	ids = ids[:q.Count]
	if err := h.ids.Fill(ids); err != nil {
		return fail(w, r, err)
	}
	header := w.Header()
	header["Content-Type"] = contentTypeText
	if q.JSON {
		header["Content-Type"] = contentTypeJSON
	}
	err = withBuffer(uint64(q.SizeMax()), func(b []byte) error {
		b = q.AppendIDs(b, ids)
		header["Content-Length"] = []string{strconv.Itoa(len(b))}
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return string(isotone.CodeDeadlineExceeded) // the client left, or would not read in time
	}
	return httpapi.CodeOK
}
