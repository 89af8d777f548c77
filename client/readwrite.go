package client

import (
	"bufio"
	"context"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// ReadWrite is an oracle of reads and writes: it gives the writes of a database their times, in unix milliseconds, and tells at which time reads see
// all writes that are complete. Each timeline has one. Its operations are linearizable, whichever clients call them, and its times go on with
// every owner. An operation that fails may have been carried out; each can be repeated.
//
//	oracle := c.Timeline("orders").ReadWrite()
//	at, err := oracle.Write(ctx)   // then write at this time,
//	_, err = oracle.Apply(ctx, at) // and have reads see it
//	at, err = oracle.Read(ctx)     // read at this time
//
// These are write_ts, apply_write and read_ts of Materialize's TimestampOracle. Each call is a request of its own; at most 1024 of a timeline wait,
// and further ones fail with isotone.ErrOverloaded. Times of writes differ by a millisecond at least, so a timeline sustains a thousand writes a
// second; the nodes refuse more for a while, and the client repeats them until the context ends. The oracle's times and the timestamps of the timeline
// have no order between them. Safe for concurrent use.
type ReadWrite struct{ reader Reader }

// ReadWrite returns the oracle of reads and writes of a timeline, in the reader's mode. Its floor does not count. Calls for the default order fail
// with isotone.ErrInvalidArgument.
func (r Reader) ReadWrite() ReadWrite {
	if r.order.isDefault() && r.fault == nil {
		r.fault = isotone.Errorf(isotone.CodeInvalidArgument, "the default order has no oracle of reads and writes; timelines have: c.Timeline(name).ReadWrite()")
	}
	return ReadWrite{r}
}

// Write returns the time for a write, in unix milliseconds. It is larger than any time that any client had received from Write, Peek or Read, or
// applied, when the call began.
func (o ReadWrite) Write(ctx context.Context) (ms uint64, err error) { return o.ask(ctx, "WRITE") }

// Peek returns the time of the latest write, in unix milliseconds, or a later one that no write has: it is not smaller than any that any client had
// received or applied when the call began.
func (o ReadWrite) Peek(ctx context.Context) (ms uint64, err error) { return o.ask(ctx, "PEEK") }

// Read returns the time to read at, in unix milliseconds. It is not smaller than any that any client had received from Read, or applied, when the
// call began, and smaller than all times of later writes. After a change of owners it may be larger than those of writes that are not applied yet.
func (o ReadWrite) Read(ctx context.Context) (ms uint64, err error) { return o.ask(ctx, "READ") }

// Apply says that writes up to a time, in unix milliseconds, are complete: later reads are at or after it. It returns the time of a read right after
// that. A time beyond all that the timeline may have issued fails with isotone.ErrInvalidArgument.
func (o ReadWrite) Apply(ctx context.Context, ms uint64) (read uint64, err error) {
	return o.ask(ctx, "APPLY", strconv.FormatUint(ms, 10))
}

// ask carries out an operation.
func (o ReadWrite) ask(ctx context.Context, operation ...string) (ms uint64, err error) {
	r := o.reader
	if err := r.check(1, 1); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, r.order.timeoutError(ctx)
	}
	command := append([]string{"ORACLE", r.order.timeline.name}, operation...)
	if r.mode != isotone.ReadDefault {
		command = append(command, r.mode.String())
	}
	b := newBatch(r.order, kind(r.mode))
	b.isOracle, b.trace, b.line = true, o.reader.client.traceparent(ctx), appendCommand(b.buf[:0], command...)
	b.state.Store(stateSealed | stateCall | 1)
	if err := r.order.queueAlone(b); err != nil {
		return 0, err
	}
	r.order.begin()
	if err := r.order.wait(ctx, b, false); err != nil {
		return 0, err
	}
	return b.first.Time, nil
}

// readMillis reads the answer to ORACLE.
func readMillis(r *bufio.Reader) (isotone.Timestamp, error) {
	line, err := reply.Line(r)
	if err != nil {
		return isotone.Timestamp{}, err
	}
	ms, err := strconv.ParseUint(string(line[1:]), 10, 63)
	if line[0] != ':' || err != nil {
		return isotone.Timestamp{}, reply.Malformed("%.40q instead of a time in milliseconds", line)
	}
	return isotone.Timestamp{Time: ms}, nil
}
