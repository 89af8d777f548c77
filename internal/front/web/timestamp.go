package web

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/trace"
)

// The sizes of the buffers for answers. A large answer is written in pieces and never held
// whole.
const (
	smallBufferSize = 512
	largeBufferSize = 32 << 10
)

var (
	contentLengthOne   = []string{strconv.Itoa(isotone.TimestampSize)}
	contentLengthRange = []string{strconv.Itoa(isotone.RangeSize)}
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBufferSize]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBufferSize]byte) }}
	calls        = sync.Pool{New: func() any { return newCall() }}
)

// timestamp answers GET /timestamp. Only valid requests reach the backend.
func (h *handler) timestamp(w http.ResponseWriter, r *http.Request) string {
	q, err := httpapi.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fail(w, r, err)
	}
	q = q.Accepting(r.Header["Accept"]...)
	if q.Mode == isotone.ReadDefault {
		q.Mode = h.mode
	}
	s := sessionOf(r.Context())
	if q.Timeline, err = s.RequireTimeline(q.Timeline); err == nil {
		err = s.Charge(1, q.Count)
	}
	if err != nil {
		return refuse(w, r, s, err)
	}
	issued, err := h.take(r.Context(), &q)
	if err != nil {
		if isReset(r) {
			return refuse(w, r, s, err)
		}
		return fail(w, r, err)
	}
	h.tellCluster(w.Header()) // the node may have just learned it
	if err := answerRange(w, q.Format, issued); err != nil {
		return string(isotone.CodeDeadlineExceeded) // the client left, or would not read in time
	}
	return httpapi.CodeOK
}

// call is one request to the backend, from a pool.
type call struct {
	batch  front.Batch
	counts [1]uint64
	ranges [1]isotone.Range
	done   chan struct{} // has a buffer of one, so Done never blocks
	timer  *time.Timer
}

func newCall() *call {
	c := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	c.batch.Done = func(*front.Batch) { c.done <- struct{}{} }
	return c
}

// take submits one request and waits for its answer. A call whose answer came goes
// back to the pool; an abandoned one never does, because the backend still owns
// its batch.
func (h *handler) take(ctx context.Context, q *httpapi.Query) (isotone.Range, error) {
	c := calls.Get().(*call)
	c.counts[0], c.ranges[0] = q.Count, isotone.Range{}
	c.batch.Mode, c.batch.U64, c.batch.Floor, c.batch.Timeline, c.batch.Err, c.batch.Trace = q.Mode, q.Format.IsU64(), q.Floor, q.Timeline, nil, trace.Of(ctx)
	c.batch.Op, c.batch.At = q.Op, q.At
	s := sessionOf(ctx)
	c.batch.Raise, c.batch.Moved = c.batch.Floor != (isotone.Timestamp{}) && s.May(access.Floors), false
	c.batch.Counts, c.batch.Ranges = c.counts[:], c.ranges[:]
	h.backend.Submit(&c.batch)
	if err := c.wait(ctx, h.limits.RequestTimeout); err != nil {
		return isotone.Range{}, err
	}
	if c.batch.Moved {
		s.Moved(c.batch.Floor)
	}
	issued, err := c.result()
	if err == nil {
		s.Used(1, q.Count)
	}
	calls.Put(c)
	return issued, err
}

// wait waits for Done. After an error the backend may still own the batch.
func (c *call) wait(ctx context.Context, timeout time.Duration) error {
	select {
	case <-c.done: // answered within Submit
		return nil
	default:
	}
	c.timer.Reset(timeout)
	defer c.timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-c.timer.C:
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer within %v", timeout)
	case <-ctx.Done():
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time: %v", context.Cause(ctx))
	}
}

func (c *call) result() (isotone.Range, error) {
	if c.batch.Err != nil {
		return isotone.Range{}, c.batch.Err
	}
	if len(c.batch.Ranges) != 1 || c.batch.Ranges[0].Count != c.counts[0] {
		return isotone.Range{}, httpapi.WrongCount(c.counts[0])
	}
	return c.batch.Ranges[0], nil
}

// answerRange writes a successful answer. After an error the answer is incomplete.
func answerRange(w http.ResponseWriter, f httpapi.Format, issued isotone.Range) error {
	header := w.Header()
	switch f {
	case httpapi.Range:
		header["Content-Type"], header["Content-Length"] = contentTypeBinary, contentLengthRange
		buffer := smallBuffers.Get().(*[smallBufferSize]byte)
		defer smallBuffers.Put(buffer)
		b, _ := issued.AppendBinary(buffer[:0])
		_, err := w.Write(b)
		return err
	case httpapi.JSON:
		header["Content-Type"] = contentTypeJSON
		return withBuffer(issued.Count*httpapi.JSONEntryMax, func(b []byte) error { return writeJSON(w, issued.Count, issued.At, b) })
	case httpapi.U64:
		size := issued.Count * isotone.Timestamp64Size
		header["Content-Type"], header["Content-Length"] = contentTypeBinary, []string{strconv.FormatUint(size, 10)}
		return withBuffer(size, func(b []byte) error { return writeBinary64(w, front.Range64(issued), b) })
	case httpapi.U64JSON:
		header["Content-Type"] = contentTypeJSON
		return withBuffer(issued.Count*uint64(httpapi.JSON64EntryMax), func(b []byte) error { return writeJSON64(w, front.Range64(issued), b) })
	default:
		size := tellSize(header, issued.Count)
		return withBuffer(size, func(b []byte) error { return writeBinary(w, issued.Count, issued.At, b) })
	}
}

// tellSize sets the header fields of an answer of n timestamps in binary, and returns its size.
func tellSize(header http.Header, n uint64) (size uint64) {
	size = n * isotone.TimestampSize
	header["Content-Type"], header["Content-Length"] = contentTypeBinary, contentLengthOne
	if n != 1 {
		header["Content-Length"] = []string{strconv.FormatUint(size, 10)}
	}
	return size
}

// withBuffer calls write with an empty buffer for an answer of size bytes.
func withBuffer(size uint64, write func([]byte) error) error {
	if size <= smallBufferSize {
		buffer := smallBuffers.Get().(*[smallBufferSize]byte)
		defer smallBuffers.Put(buffer)
		return write(buffer[:0])
	}
	buffer := largeBuffers.Get().(*[largeBufferSize]byte)
	defer largeBuffers.Put(buffer)
	return write(buffer[:0])
}

// writePieces writes what add appends for each of n entries of at most size bytes, and at the end the
// bytes of end. b is a buffer, which may have bytes already.
func writePieces(w io.Writer, n uint64, size int, b []byte, add func(b []byte, i uint64) []byte, end string) error {
	for i := range n {
		if cap(b)-len(b) < size+len(end) {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = add(b, i)
	}
	_, err := w.Write(append(b, end...))
	return err
}

// writeBinary writes n timestamps; at returns the i-th, and b is an empty buffer.
func writeBinary(w io.Writer, n uint64, at func(i uint64) isotone.Timestamp, b []byte) error {
	return writePieces(w, n, isotone.TimestampSize, b, func(b []byte, i uint64) []byte {
		b, _ = at(i).AppendBinary(b)
		return b
	}, "")
}

// writeBinary64 is writeBinary for the 64-bit form.
func writeBinary64(w io.Writer, r isotone.Range64, b []byte) error {
	return writePieces(w, r.Count, isotone.Timestamp64Size, b, func(b []byte, i uint64) []byte {
		return binary.BigEndian.AppendUint64(b, uint64(r.At(i)))
	}, "")
}

// writeJSON is writeBinary as JSON.
func writeJSON(w io.Writer, n uint64, at func(i uint64) isotone.Timestamp, b []byte) error {
	return writePieces(w, n, httpapi.JSONEntryMax+len(","), append(b, httpapi.JSONBegin...), func(b []byte, i uint64) []byte {
		return httpapi.AppendJSON(comma(b, i), at(i))
	}, httpapi.JSONEnd)
}

// writeJSON64 is writeBinary64 as JSON.
func writeJSON64(w io.Writer, r isotone.Range64, b []byte) error {
	return writePieces(w, r.Count, httpapi.JSON64EntryMax+len(","), append(b, httpapi.JSONBegin...), func(b []byte, i uint64) []byte {
		return httpapi.AppendJSON64(comma(b, i), r.At(i))
	}, httpapi.JSONEnd)
}

// comma appends a comma before each entry but the first.
func comma(b []byte, i uint64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}
