package verify

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

// aftermath is how long after the end of a fault a silence may begin that is said to be its consequence.
const aftermath = 2 * time.Second

// failuresMax bounds the different messages of errors that are counted; all others are one more.
const failuresMax = 1000

// messageMax bounds a message that is kept, in bytes: it may be what the system has answered, whatever that is.
const messageMax = 500

// tally is what was measured until now. It is safe for concurrent use. Times are readings of [driver.Now].
type tally struct {
	mu      sync.Mutex
	epoch   int64
	checker *checker
	series  *series
	// asking has, for each client, when its request under way was begun; 0 if there is none.
	asking []int64

	answers, numbers, failures uint64
	errors                     map[string]uint64
	latest                     int   // the node that gave the latest answer
	last                       int64 // when the latest answer came
	longest                    int64 // without one
	faults                     []*fault
}

// fault is one that was injected. The result has its times once they are known.
type fault struct {
	Fault
	at, end int64 // end is 0 while it lasts
}

func newTally(clients, window int) *tally {
	now := driver.Now()
	return &tally{
		epoch: now, checker: newChecker(clients, window, now), series: newSeries(), asking: make([]int64, clients),
		errors: map[string]uint64{}, last: now,
	}
}

// begin notes that a client is about to ask. It reports false if it has to wait.
func (t *tally) begin(client int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.checker.full() {
		return false
	}
	t.asking[client] = driver.Now()
	return true
}

// done takes in what a client got from a node. It reports whether the node gave all that it was asked for.
func (t *tally) done(client, node int, a driver.Answer, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	complete := err == nil && a.Failed == nil
	for _, call := range a.Calls {
		numbers, malformed := got(call)
		if malformed != nil {
			t.failed(malformed)
			complete = false
			continue
		}
		t.checker.add(op{client: client, node: node, began: call.Began, ended: call.Ended, numbers: numbers})
	}
	t.asking[client] = 0
	t.settle()
	if a.Failed != nil {
		err = &driver.Error{Kind: a.Failed.Error, Message: a.Failed.Message}
	}
	if err != nil {
		t.failed(err)
	}
	return complete
}

// giveUp notes that nothing will come of a client's request.
func (t *tally) giveUp(client int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking[client] = 0
}

// finish judges what is left when nobody asks any more.
func (t *tally) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.asking)
	t.settle()
	t.silence(t.last, driver.Now())
}

// settle judges all calls that ended before what is under way was begun.
func (t *tally) settle() {
	before := driver.Now()
	for _, began := range t.asking {
		if began > 0 {
			before = min(before, began)
		}
	}
	t.checker.settle(before, t.answered)
}

func (t *tally) answered(o op) {
	t.answers++
	if !t.checker.intervals {
		t.numbers += o.numbers.Count
	}
	t.latest = o.node
	t.series.answered(o.ended-t.epoch, o.ended-o.began)
	t.silence(t.last, o.ended)
	if f := t.faultAt(o.ended); f != nil && (f.end == 0 || o.ended <= f.end) {
		f.Answers++
	}
	t.last = o.ended
}

// silence notes a time without an answer. It is a consequence of the faults that began in it, each until the next one, and of
// the one before, if that had hardly ended.
func (t *tally) silence(from, to int64) {
	t.longest = max(t.longest, to-from)
	for _, f := range slices.Backward(t.faults) {
		if f.at > to {
			continue
		}
		if from < f.until() {
			f.SilentMS = max(f.SilentMS, float64(to-max(from, f.at))/1e6)
		}
		if f.at <= from {
			return
		}
		to = f.at
	}
}

// faultAt returns the latest fault that had begun at a time, or nil.
func (t *tally) faultAt(at int64) *fault {
	for _, f := range slices.Backward(t.faults) {
		if f.at <= at {
			return f
		}
	}
	return nil
}

// until returns until when a silence has to begin to be a consequence of the fault.
func (f *fault) until() int64 {
	if f.end == 0 {
		return 1<<63 - 1
	}
	return f.end + aftermath.Nanoseconds()
}

func (t *tally) failed(err error) {
	now := driver.Now()
	t.failures++
	t.series.failed(now - t.epoch)
	if f := t.faultAt(now); f != nil && f.end == 0 {
		f.Failed++
	}
	var known *driver.Error
	message := err.Error()
	if errors.As(err, &known) {
		message = known.Message
		if known.Kind == driver.Malformed {
			t.checker.malformed++
		}
	}
	message = clipped(message)
	if _, ok := t.errors[message]; !ok && len(t.errors) >= failuresMax {
		message = "others"
	}
	t.errors[message]++
}

// clipped returns a message, or the beginning of one that is too long.
func clipped(message string) string {
	if len(message) <= messageMax {
		return message
	}
	end := messageMax
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}

// beginFault notes that a fault begins now. end has it end.
func (t *tally) beginFault(what Fault) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &fault{Fault: what, at: driver.Now()}
	t.faults = append(t.faults, f)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		f.end = driver.Now()
	}
}

// note says of the fault that is under way what became of it.
func (t *tally) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range slices.Backward(t.faults) {
		if f.end == 0 {
			f.Note = clipped(text)
			return
		}
	}
}

// recovered reports whether there was an answer after the latest fault.
func (t *tally) recovered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.faults) == 0 {
		return true
	}
	end := t.faults[len(t.faults)-1].end
	return end > 0 && t.last > end
}

// latestNode returns the node that gave the latest answer.
func (t *tally) latestNode() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

// fill puts what was measured into a result.
func (t *tally) fill(r *Result, promised Order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := driver.Now()
	r.Seconds = t.seconds(now)
	r.Answers, r.Numbers, r.Failed, r.Malformed = t.answers, t.numbers, t.failures, t.checker.malformed
	r.Verdicts, r.Anomalies = t.checker.report(promised), slices.Clone(t.checker.anomalies)
	r.LongestMS = float64(max(t.longest, now-t.last)) / 1e6
	for _, f := range t.faults {
		out := f.Fault
		if out.AtS = t.seconds(f.at); f.end > 0 {
			out.EndS = t.seconds(f.end)
		}
		r.Faults = append(r.Faults, out)
	}
	t.series.fill(r)
	for message, count := range maps.All(t.errors) {
		r.Errors = append(r.Errors, ErrorCount{Message: message, Count: count})
	}
	slices.SortFunc(r.Errors, func(a, b ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Message, b.Message))
	})
	r.Errors = r.Errors[:min(len(r.Errors), ErrorsMax)]
}

func (t *tally) seconds(at int64) float64 { return float64(at-t.epoch) / 1e9 }
