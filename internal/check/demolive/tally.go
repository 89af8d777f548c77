package demolive

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// tally checks what the readers of a phase get. Its methods may be called concurrently.
type tally struct {
	readers int

	mu    sync.Mutex
	base  int // version of the first document
	docs  []*document
	count uint64 // correct events
	wrong uint64 // events, and streams that ended
	first string // the first of these
}

// document is one that was written.
type document struct {
	data                 []byte
	written, first, last time.Time // first and last: when readers got it
	got                  int       // by how many readers
}

// newTally begins with the document that is current.
func newTally(readers, version int, data []byte) *tally {
	return &tally{readers: readers, base: version, docs: []*document{{data: data, written: time.Now()}}}
}

// wrote adds the next document. Call it before readers can have it.
func (t *tally) wrote(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.docs = append(t.docs, &document{data: data, written: time.Now()})
}

// received checks the event of a reader that had a version, 0 for none, and returns the version that it has now.
func (t *tally) received(had int, data []byte, now time.Time) int {
	version := versionOf(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch i := version - t.base; {
	case i < 0 || i >= len(t.docs):
		t.fault("a reader got a document that was not written: %.60q", data)
	case !bytes.Equal(data, t.docs[i].data):
		t.fault("a reader got a version %d that is not what was written", version)
	case version <= had:
		t.fault("a reader got version %d after version %d", version, had)
	default:
		d := t.docs[i]
		// Readers take the time before they come here, so they may come in another order.
		if d.got == 0 || now.Before(d.first) {
			d.first = now
		}
		if now.After(d.last) {
			d.last = now
		}
		d.got++
		t.count++
		return version
	}
	return had
}

// versionOf returns the version of a document; 0: it has none.
func versionOf(data []byte) int {
	rest, ok := bytes.CutPrefix(data, []byte(`{"version":`))
	number, _, found := bytes.Cut(rest, []byte(","))
	version, err := strconv.Atoi(string(number))
	if !ok || !found || err != nil {
		return 0
	}
	return version
}

// ended counts a stream that ended before its time, or never began.
func (t *tally) ended(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault("the stream of a reader ended: %v", err)
}

// fault counts what is wrong. t.mu must be held.
func (t *tally) fault(format string, args ...any) {
	t.wrong++
	if t.first == "" {
		t.first = fmt.Sprintf(format, args...)
	}
}

// events returns how many events were correct.
func (t *tally) events() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// faults returns how many events and streams were wrong, and the first of them.
func (t *tally) faults() (uint64, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrong, t.first
}

// have returns how many readers have the latest document.
func (t *tally) have() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.docs[len(t.docs)-1].got
}

// waitPoll is the time between two looks of wait.
const waitPoll = 5 * time.Millisecond

// wait waits until all readers have the latest document, one of them is wrong, or ctx is done. show is called
// now and then.
func (t *tally) wait(ctx context.Context, show func()) {
	for i := 0; ctx.Err() == nil && t.have() < t.readers; i++ {
		if wrong, _ := t.faults(); wrong > 0 {
			return
		}
		if i%40 == 0 {
			show()
		}
		select {
		case <-ctx.Done():
		case <-time.After(waitPoll):
		}
	}
}

// lag returns the times from a write to its first and its last reader, of the latest document that all have.
func (t *tally) lag() (first, last time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range slices.Backward(t.docs[1:]) {
		if d.got == t.readers {
			return d.first.Sub(d.written), d.last.Sub(d.written)
		}
	}
	return 0, 0
}

// fill puts what came after the first document into p. If the phase has ended by itself, a reader without the last
// document has missed it. Documents in between may be passed over: a stream has the newest one, and queues none.
func (t *tally) fill(p *Phase, complete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first, last []float64
	changes := t.docs[1:]
	for i, d := range changes {
		p.Documents++
		p.Events += uint64(d.got)
		switch {
		case i == len(changes)-1 && !complete:
		case i == len(changes)-1:
			p.Missed = t.readers - d.got
		case d.got == 0: // written twice within one interval of the node
			p.NotLoaded++
		default:
			p.PassedOver += t.readers - d.got
		}
		if d.got == t.readers {
			first = append(first, millis(d.first.Sub(d.written)))
			last = append(last, millis(d.last.Sub(d.written)))
		}
	}
	p.FirstMS, p.LastMS = median(first), median(last)
	if len(last) > 0 {
		p.WorstMS = slices.Max(last)
	}
}

// median returns the median, 0 of nothing.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[(len(list)-1)/2]
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond).Microseconds()) / 1e3
}
