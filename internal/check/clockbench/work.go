package clockbench

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/steady"
)

// This file is the work of a process in a phase.

// work is one phase under way.
type work struct {
	server *server
	phase  phase
	end    time.Time
	*measured
}

// measured collects what goroutines measure.
type measured struct {
	mu         sync.Mutex
	generators []Generator
	perSecond  float64
	errors     map[string]uint64
	histograms map[string]*hdrhistogram.Histogram
}

func newMeasured() *measured {
	m := &measured{errors: map[string]uint64{}, histograms: map[string]*hdrhistogram.Histogram{}}
	for _, name := range []string{histogramWidth, histogramAge, histogramLeft, histogramCommit, histogramOracle} {
		m.histograms[name] = newHistogram()
	}
	return m
}

func (m *measured) outcome() *outcome {
	o := &outcome{Generators: m.generators, PerSecond: m.perSecond, Errors: m.errors, Histograms: map[string]*hdrhistogram.Snapshot{}}
	for name, h := range m.histograms {
		if h.TotalCount() > 0 {
			o.Histograms[name] = h.Export()
		}
	}
	return o
}

func (m *measured) took(name string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.histograms[name].RecordValue(max(0, min(int64(d), latencyMax))) // in range
}

// failed counts an error, unless the run is to end, and pauses.
func (w *work) failed(err error) {
	if w.server.stopped.Err() != nil {
		return
	}
	w.mu.Lock()
	w.errors[codeOf(err)]++
	w.mu.Unlock()
	w.server.pause(errorPause)
}

func (w *work) made(g Generator, perSecond float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.perSecond += perSecond
	if g.Count > 0 {
		w.generators = append(w.generators, g)
	}
}

// over reports whether the phase has ended.
func (w *work) over() bool { return w.server.stopped.Err() != nil || !time.Now().Before(w.end) }

// records are those that a goroutine has not sent yet.
type records struct {
	message
	sent time.Time
}

// flush sends the records if there are many, or now.
func (w *work) flush(r *records, now bool) {
	if n := len(r.Operations) + len(r.Reads); n == 0 || !now && n < flushSize && time.Since(r.sent) < flushEvery {
		return
	}
	w.server.send(r.message)
	r.Operations, r.Reads, r.sent = r.Operations[:0], r.Reads[:0], time.Now()
}

// operate takes one timestamp after the other: of a generator, which it waits for, or of the oracle.
func (w *work) operate(lane int) {
	var r records
	stamps := w.server.clock.NewGenerator()
	made := Generator{Lane: lane}
	for !w.over() {
		begin := time.Now()
		o := Operation{Lane: lane, Oracle: rand.IntN(2) == 0}
		var err error
		if o.Oracle {
			err = w.ask(&o)
		} else {
			err = w.stamp(&o, stamps, &made)
		}
		if o.Timestamp != (isotone.Timestamp{}) {
			r.Operations = append(r.Operations, o)
		}
		if err != nil {
			w.failed(err)
		}
		w.flush(&r, false)
		w.server.pause(min(w.phase.Pace-time.Since(begin), time.Until(w.end)))
	}
	w.flush(&r, true)
	w.made(made, 0)
}

// ask takes a timestamp of the oracle.
func (w *work) ask(o *Operation) (err error) {
	ctx, cancel := context.WithTimeout(w.server.stopped, w.server.options.Timeout)
	defer cancel()
	begin := time.Now()
	o.Invocation = steady.Exact()
	o.Timestamp, err = w.server.client.In(isotone.ReadQuorum).Timestamp(ctx)
	o.Completion = steady.Exact()
	if err == nil {
		w.took(histogramOracle, time.Since(begin))
	}
	return err
}

// stamp takes a timestamp of a generator, and waits for it.
func (w *work) stamp(o *Operation, g *client.ClockGenerator, made *Generator) (err error) {
	ctx, cancel := context.WithTimeout(w.server.stopped, w.server.options.Timeout)
	defer cancel()
	begin := time.Now()
	o.Invocation = steady.Exact()
	o.Completion = Never
	if o.Timestamp, err = g.Timestamp(ctx); err != nil {
		return err
	}
	made.note([]isotone.Timestamp{o.Timestamp})
	if err = w.server.clock.Wait(ctx, o.Timestamp); err != nil {
		return err
	}
	o.Completion = steady.Exact()
	if w.phase.Batch == 0 { // otherwise the generator may be ahead of the clock, which takes longer
		w.took(histogramCommit, time.Since(begin))
	}
	return nil
}

// timestampsPerLook is how many timestamps generate makes before it looks at the time: some
// microseconds of work, so that looking does not count.
const timestampsPerLook = 1 << 12

// generate makes timestamps as fast as it can. In the end it takes one more, and waits for it.
func (w *work) generate(lane int) {
	ctx, cancel := context.WithTimeout(w.server.stopped, w.phase.Duration+w.server.options.Timeout)
	defer cancel()
	g, made, batch := w.server.clock.NewGenerator(), Generator{Lane: lane}, make([]isotone.Timestamp, w.phase.Batch)
	begin := time.Now()
	for !w.over() {
		for range max(1, timestampsPerLook/w.phase.Batch) {
			if err := next(ctx, g, batch); err != nil {
				w.failed(err)
				break
			}
			made.note(batch)
		}
		made.look(batch)
	}
	perSecond := float64(made.Count) / time.Since(begin).Seconds()
	var o Operation
	o.Lane = lane
	if err := w.stamp(&o, g, &made); err != nil {
		w.failed(err)
	}
	if o.Timestamp != (isotone.Timestamp{}) {
		w.server.send(message{Operations: []Operation{o}})
	}
	w.made(made, perSecond)
}

// next fills a batch, of one by the call for one. After an error the batch is what it was.
func next(ctx context.Context, g *client.ClockGenerator, batch []isotone.Timestamp) error {
	if len(batch) != 1 {
		return g.Timestamps(ctx, batch)
	}
	ts, err := g.Timestamp(ctx)
	if err == nil {
		batch[0] = ts
	}
	return err
}

// read records reads of the cluster clock.
func (w *work) read() {
	var r records
	ticker := time.NewTicker(w.phase.ReadPace)
	defer ticker.Stop()
	for !w.over() {
		if err := w.readOnce(&r); err != nil {
			w.failed(err)
		}
		w.flush(&r, false)
		select {
		case <-ticker.C:
		case <-w.server.stopped.Done():
		}
	}
	w.flush(&r, true)
}

// readOnce records a read. The term is known if it was the same before and after.
func (w *work) readOnce(r *records) error {
	k := w.server.clock
	before := k.Stats()
	lo := steady.Exact()
	now, err := k.Now()
	hi := steady.Exact()
	if err != nil {
		return err
	}
	after := k.Stats()
	if before.Term == after.Term && before.Term != 0 {
		r.Reads = append(r.Reads, Read{Lo: lo, Hi: hi, Earliest: now.Earliest, Latest: now.Latest, Term: after.Term})
	}
	if w.phase.Lanes > 0 && w.phase.Batch == 0 {
		w.took(histogramWidth, now.Width())
		w.took(histogramAge, after.Age)
		w.took(histogramLeft, after.Left)
	}
	return nil
}
