package client

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// FrontierOptions configures a [FrontierWriter]. Only Fence is required.
type FrontierOptions struct {
	// Fence is that of the stores in which the group writes: Seal has them refuse all writes with a stamp at or below through. See package
	// github.com/isotone/isotone/fence.
	Fence interface {
		Seal(ctx context.Context, through isotone.Timestamp) error
	}
	// TTL and Linger are those of its session. 0 means 1 s and 30 ms: so the frontier goes on soon after a writer has died.
	TTL, Linger time.Duration
	// U64 asks for stamps of the 64-bit form, for stores that keep a BIGINT.
	U64 bool
	// Clock is the cluster clock, of which [FrontierWriter.BeginAhead] makes stamps. nil: there is none. It does not go together with U64. Close it after the writer.
	Clock *Clock
	// Label tells operators whose writes they are; see [SessionOptions].
	Label string
}

// FrontierWriter writes in a group whose *frontier* readers can ask for: a timestamp of which it is known that no write at or below it is accepted any more. It has a session of
// its own, and is safe for concurrent use.
type FrontierWriter struct {
	group   string
	options FrontierOptions
	session *Session
	maker   *ClockGenerator // of stamps; nil: there is no clock

	// guarded by Session.mu
	waiting []*stampWait
	sealTo  isotone.Timestamp
	sealing bool
}

// stampWait is a call of Begin that waits.
type stampWait struct {
	stamp chan isotone.Timestamp // holds one
	err   error                  // set before stamp is closed
	gone  bool
}

// beginsMax bounds the calls of Begin that wait.
const beginsMax = 1 << 16

// NewFrontier begins to write in a group, whose name has 1 to 128 bytes. It waits until the leader has confirmed that and the fence is raised to the frontier, or ctx is done.
func (c *Client) NewFrontier(ctx context.Context, group string, o FrontierOptions) (*FrontierWriter, error) {
	if group == "" || o.Fence == nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "a frontier needs the name of a group and a fence")
	}
	if o.U64 && o.Clock != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "stamps of a frontier that are made of a Clock have no 64-bit form")
	}
	if o.TTL == 0 {
		o.TTL = time.Second
	}
	if o.Linger == 0 {
		o.Linger = 30 * time.Millisecond
	}
	w := &FrontierWriter{group: group, options: o}
	if o.Clock != nil {
		w.maker = o.Clock.NewGenerator()
	}
	s, err := c.newSession(ctx, SessionOptions{TTL: o.TTL, Linger: o.Linger, Label: o.Label}, 1, w)
	if err != nil {
		return nil, err
	}
	for _, f := range s.first { // a store that joins begins above the frontier (R9)
		if err := o.Fence.Seal(ctx, f.Stamp); err != nil {
			s.abandon(ErrClosed)
			return nil, err
		}
	}
	return w, nil
}

// Done is closed when the session has ended. Nothing may be written any more then.
func (w *FrontierWriter) Done() <-chan struct{} { return w.session.done }

// Err returns why the session has ended, nil as long as it lives.
func (w *FrontierWriter) Err() error { return w.session.Err() }

// Close ends the session. The frontier does not wait for it any more; see [Session.Close].
func (w *FrontierWriter) Close(ctx context.Context) error { return w.session.Close(ctx) }

// Begin returns a write with a stamp of its own, larger than all stamps and timestamps that anybody has received before the call. Calls share requests. The frontier stays below the stamp until
// Done or Unknown.
func (w *FrontierWriter) Begin(ctx context.Context) (*FrontierWrite, error) {
	return w.begin(ctx, false)
}

// BeginAhead is Begin that makes the stamp in this process if it can, of FrontierOptions.Clock. The leader permits that for about 40 ms, as long as there are writes that are not decided, and stamps of the clock are not further in the
// future. Otherwise BeginAhead asks the leader, as Begin does, and may make the next stamps. So it saves requests where many writes are under way, and none where they come one after the other.
//
// A stamp of the clock is in real-time order with others once it is in the past for everyone. So wait with [Clock.Wait] for [FrontierWrite.Stamp] before you report the end of a write, even to this process. The frontier needs no wait, and
// depends on no clock.
func (w *FrontierWriter) BeginAhead(ctx context.Context) (*FrontierWrite, error) {
	if w.maker == nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "stamps of a frontier that this process makes need FrontierOptions.Clock")
	}
	if at, ok := w.maker.take(w.maker.k.known.Load(), 1); ok {
		s, stamp := w.session, isotone.Timestamp{Time: at, Index: w.maker.index}
		s.mu.Lock()
		made := s.err == nil && s.core.Make(w.group, stamp)
		s.mu.Unlock()
		if made {
			return &FrontierWrite{w, stamp}, nil
		}
	}
	return w.begin(ctx, true)
}

func (w *FrontierWriter) begin(ctx context.Context, ahead bool) (*FrontierWrite, error) {
	s, wait := w.session, &stampWait{stamp: make(chan isotone.Timestamp, 1)}
	s.mu.Lock()
	switch {
	case s.err != nil:
		s.mu.Unlock()
		return nil, s.err
	case len(w.waiting) >= beginsMax:
		s.mu.Unlock()
		return nil, isotone.Errorf(isotone.CodeOverloaded, "%d writes wait for their stamps", beginsMax)
	}
	w.waiting = append(w.waiting, wait)
	s.core.Take(w.group, 1, ahead, w.options.U64)
	s.mu.Unlock()
	s.wake()
	select {
	case stamp, ok := <-wait.stamp:
		if !ok {
			return nil, wait.err
		}
		return &FrontierWrite{w, stamp}, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wait.gone = true
	select {
	case stamp, ok := <-wait.stamp:
		if ok {
			s.core.Done(w.group, stamp)
		}
	default:
	}
	return nil, s.client.timeoutError(ctx)
}

// stamps hands stamps to those who wait. The caller holds Session.mu.
func (w *FrontierWriter) stamps(e session.Event) {
	for n := range e.Range.Count {
		stamp := isotone.Timestamp{Time: e.Range.First.Time, Index: e.Range.First.Index + n}
		if w.options.U64 {
			stamp = (isotone.Timestamp64From(e.Range.First) + isotone.Timestamp64(n)).Timestamp()
		}
		for len(w.waiting) > 0 && w.waiting[0].gone {
			w.waiting = w.waiting[1:]
		}
		if len(w.waiting) == 0 {
			w.session.core.Done(w.group, stamp)
			continue
		}
		w.waiting[0].stamp <- stamp
		w.waiting = w.waiting[1:]
	}
}

// fail fails those who wait. The caller holds Session.mu.
func (w *FrontierWriter) fail(err error) {
	for _, wait := range w.waiting {
		wait.err = err
		close(wait.stamp)
	}
	w.waiting = nil
}

// seal has the stores raise their fence, and tells the leader. One goroutine does so for the latest seal. The caller holds Session.mu.
func (w *FrontierWriter) seal(through isotone.Timestamp) {
	if w.sealTo.Before(through) {
		w.sealTo = through
	}
	if w.sealing || !w.session.client.enter() {
		return
	}
	w.sealing = true
	go func() {
		defer w.session.client.work.Done()
		w.sealAll()
	}()
}

func (w *FrontierWriter) sealAll() {
	s := w.session
	for failures := 0; ; {
		s.mu.Lock()
		through := w.sealTo
		s.mu.Unlock()
		err := w.options.Fence.Seal(s.ctx, through)
		if err != nil {
			failures++
			s.client.trouble.note("the fence of "+w.group, err)
			select {
			case <-time.After(backoff(failures)):
			case <-s.ctx.Done():
			}
		}
		s.mu.Lock()
		if err == nil {
			failures = 0
			s.core.Sealed(w.group, through)
		}
		if over := s.err != nil || err == nil && through == w.sealTo; over {
			w.sealing = false
			s.mu.Unlock()
			s.wake()
			return
		}
		s.mu.Unlock()
	}
}

// FrontierWrite is a write of a group. Each is to be ended with Done or Unknown: the frontier waits for it.
type FrontierWrite struct {
	writer *FrontierWriter
	stamp  isotone.Timestamp
}

// Stamp returns the stamp of the write, which the store checks against its fence.
func (o *FrontierWrite) Stamp() isotone.Timestamp { return o.stamp }

// Check returns nil, or an error that matches isotone.ErrFenced: the stamp must not be used any more, as the write has taken too long.
func (o *FrontierWrite) Check() error {
	s := o.writer.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case !s.core.MayWrite(o.writer.group, o.stamp):
		return isotone.ErrFenced
	}
	return nil
}

// Done says that the write is decided: the store has answered, with a success or a refusal, or it was never sent and never will be.
func (o *FrontierWrite) Done() { o.end((*session.Client).Done) }

// Unknown says that the store has not answered, and that the write is not repeated. It may still be stored until the fence is raised above it, and the frontier waits for that.
func (o *FrontierWrite) Unknown() { o.end((*session.Client).Doubt) }

func (o *FrontierWrite) end(how func(*session.Client, string, isotone.Timestamp)) {
	s := o.writer.session
	s.mu.Lock()
	how(s.core, o.writer.group, o.stamp)
	s.mu.Unlock()
	s.wake()
}

// FrontierReader reads the frontier of a group: no write at or below it is accepted any more, so what is read there is complete and does not change. It
// is for one goroutine.
type FrontierReader struct {
	line   leaderLine
	group  string
	latest isotone.Timestamp
}

// Frontier returns a reader of a group's frontier. Close it.
func (c *Client) Frontier(group string) *FrontierReader {
	return &FrontierReader{line: leaderLine{client: c}, group: group}
}

// Close closes the reader's connection.
func (r *FrontierReader) Close() { r.line.close() }

// At returns the frontier. It never sinks, for one reader. It is zero as long as no writer has begun.
func (r *FrontierReader) At(ctx context.Context) (isotone.Timestamp, error) {
	return r.ask(ctx, "FRONTIER", "GET", r.group)
}

// Wait waits until the frontier is at or above t, and returns it. With a timestamp that was taken before, what is read then has all writes that
// had ended before that.
func (r *FrontierReader) Wait(ctx context.Context, t isotone.Timestamp) (isotone.Timestamp, error) {
	for r.latest.Before(t) {
		if _, err := r.ask(ctx, "FRONTIER", "WAIT", r.group, stampText(t), watchMillis); err != nil {
			return r.latest, err
		}
	}
	return r.latest, nil
}

// Follow yields the frontier each time that it has moved, until ctx is done or the cluster refuses the client.
func (r *FrontierReader) Follow(ctx context.Context) iter.Seq2[isotone.Timestamp, error] {
	return func(yield func(isotone.Timestamp, error) bool) {
		for {
			f, err := r.Wait(ctx, above(r.latest))
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// above returns the smallest timestamp above t, which is not the last one.
func above(t isotone.Timestamp) isotone.Timestamp {
	if t.Index == math.MaxUint64 {
		return isotone.Timestamp{Time: t.Time + 1}
	}
	return isotone.Timestamp{Time: t.Time, Index: t.Index + 1}
}

func (r *FrontierReader) ask(ctx context.Context, command ...string) (isotone.Timestamp, error) {
	v, err := r.line.ask(ctx, command...)
	if err != nil {
		return r.latest, err
	}
	f, err := parseStamp(v.Text)
	if err == nil && r.latest.Before(f) {
		r.latest = f
	}
	return r.latest, err
}
