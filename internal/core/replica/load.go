package replica

import "github.com/isotone/isotone/internal/core/mutant"

// timelineShare is the divisor of the bound for the requests of one timeline: a flood of them leaves room for all else. One request
// that is larger is admitted alone.
const timelineShare = 8

// load counts and bounds the requests that wait for a round (I7), by Request.size.
type load struct {
	size, max int
	// timelines are the parts of size that belong to timelines.
	timelines map[string]int
}

// admit counts a request, or reports false if there are too many.
func (l *load) admit(q *Request) bool {
	n := q.size()
	if l.size+n > l.max {
		return false
	}
	if q.Timeline != "" {
		have := l.timelines[q.Timeline]
		if have > 0 && have+n > max(1, l.max/timelineShare) && !mutant.On(mutant.TimelineFillsQueue) {
			return false
		}
		l.timelines[q.Timeline] = have + n
	}
	l.size += n
	return true
}

// leave stops counting a request.
func (l *load) leave(q *Request) {
	n := q.size()
	l.size -= n
	if q.Timeline == "" {
		return
	}
	if l.timelines[q.Timeline] -= n; l.timelines[q.Timeline] <= 0 {
		delete(l.timelines, q.Timeline)
	}
}

// size is how much of the queue a request takes.
func (q *Request) size() int { return max(1, len(q.Counts)) }
