package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

func (h *Handler) timelines(r *http.Request, _ []byte) (any, error) {
	limit, err := limitOf(r, front.TimelinesPage, front.TimelinesPage)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
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

// busyDefault is how many timelines are told without a limit.
const busyDefault = 20

func (h *Handler) busyTimelines(r *http.Request, _ []byte) (any, error) {
	limit, err := limitOf(r, busyDefault, front.BusyTimelinesMax)
	if err != nil {
		return nil, err
	}
	return h.cfg.Timelines.BusyTimelines(limit)
}

// limitOf returns the parameter limit, or a default.
func limitOf(r *http.Request, otherwise, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "limit: want a number from 1 to %d, not %.32q", most, text)
	}
	return n, nil
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
