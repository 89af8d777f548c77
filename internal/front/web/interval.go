package web

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// interval answers GET /interval. The clock is read for this request alone: a reading belongs to a
// request that began before it.
func (h *handler) interval(w http.ResponseWriter, r *http.Request) string {
	q, err := httpapi.ParseIntervalQuery(r.URL.RawQuery)
	if err != nil {
		return fail(w, r, err)
	}
	q = q.Accepting(r.Header["Accept"]...)
	s := sessionOf(r.Context())
	if err := s.Take(1, q.Count); err != nil {
		return refuse(w, r, s, err)
	}
	switch {
	case q.Waits:
		err = h.awaitPast(r.Context(), q.Wait)
		if err == nil {
			return answerOK(w)
		}
		if isReset(r) {
			return refuse(w, r, s, err)
		}
	case q.Count > 0:
		var stamps front.Stamps
		if stamps, err = h.stamp(q.Count); err == nil {
			return tellWritten(answerStamps(w, q.JSON, stamps))
		}
	default:
		var reading interval.Reading
		if reading, err = h.clock.Now(); err == nil {
			return tellWritten(answerReading(w, q.JSON, reading, q.Nonce))
		}
	}
	return fail(w, r, err)
}

// tellWritten returns the code of a request whose answer was written with err.
func tellWritten(err error) string {
	if err != nil {
		return string(isotone.CodeDeadlineExceeded) // the client left, or would not read in time
	}
	return httpapi.CodeOK
}

// errStopping answers requests that wait while the server stops: another node can answer them.
var errStopping = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping")

// awaitPast returns once the cluster clock has passed a timestamp, or why it does not wait any
// longer.
func (h *handler) awaitPast(ctx context.Context, t isotone.Timestamp) error {
	again, err := front.UntilPast(h.clock, t)
	if again == 0 {
		return err
	}
	defer h.clockWaits.Add(-1)
	if h.clockWaits.Add(1) > int64(h.limits.ClockWaitsMax) {
		return isotone.Errorf(isotone.CodeOverloaded, "too many requests wait for the cluster clock")
	}
	deadline := time.NewTimer(front.ClockWaitMax)
	defer deadline.Stop()
	look := time.NewTimer(again)
	defer look.Stop()
	for again > 0 {
		select {
		case <-look.C:
		case <-deadline.C:
			return front.ErrNotPast
		case <-h.stopping:
			return errStopping
		case <-ctx.Done():
			return isotone.Errorf(isotone.CodeDeadlineExceeded, "the request ended before the timestamp was past: %v", context.Cause(ctx))
		}
		if again, err = front.UntilPast(h.clock, t); again > 0 {
			look.Reset(again)
		}
	}
	return err
}

func answerReading(w http.ResponseWriter, json bool, reading interval.Reading, nonce uint64) error {
	buffer := smallBuffers.Get().(*[smallBufferSize]byte)
	defer smallBuffers.Put(buffer)
	header := w.Header()
	b := buffer[:0]
	if json {
		header["Content-Type"] = contentTypeJSON
		b = httpapi.AppendReadingJSON(b, reading, nonce)
	} else {
		header["Content-Type"] = contentTypeBinary
		b = reading.Append(b, nonce)
	}
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	_, err := w.Write(b)
	return err
}

func answerStamps(w http.ResponseWriter, json bool, stamps front.Stamps) error {
	if json {
		w.Header()["Content-Type"] = contentTypeJSON
		return withBuffer(stamps.Count*httpapi.JSONEntryMax, func(b []byte) error { return writeJSON(w, stamps.Count, stamps.At, b) })
	}
	return withBuffer(tellSize(w.Header(), stamps.Count), func(b []byte) error { return writeBinary(w, stamps.Count, stamps.At, b) })
}
