package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

func (h *Handler) timelines(r *http.Request, _ []byte) (any, error) {
	q, limit := r.URL.Query(), front.TimelinesPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > front.TimelinesPage {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "limit: want a number from 1 to %d, not %.32q", front.TimelinesPage, text)
		}
		limit = n
	}
	name := q.Get("name")
	if name == "" {
		return h.cfg.Timelines.Timelines(q.Get("prefix"), q.Get("after"), limit)
	}
	// The first name with a prefix is the prefix itself, if there is such a name.
	l, err := h.cfg.Timelines.Timelines(name, "", 1)
	if len(l.Timelines) > 0 && l.Timelines[0].Name != name {
		l.Timelines = l.Timelines[:0]
	}
	l.After = ""
	return l, err
}

func (h *Handler) groups(*http.Request, []byte) (any, error) { return h.cfg.Timelines.Groups() }

func (h *Handler) changeTimelines(r *http.Request, body []byte) (any, error) {
	var c front.TimelineChange
	if err := decode(body, &c); err != nil {
		return nil, err
	}
	a, err := h.cfg.Timelines.ChangeTimelines(r.Context(), c)
	if err == nil && h.cfg.RaisedTimelines != nil && a.Above > uint64(max(0, time.Now().UnixNano())) {
		h.cfg.RaisedTimelines(r.Context(), c.Names, a.Above)
	}
	return a, err
}
