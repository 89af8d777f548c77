package report

import (
	"slices"

	"github.com/isotone/isotone/internal/check/verify"
)

// bin is what a chart shows as one column: one column of the result, or some that were merged.
type bin struct {
	from, to        float64 // in seconds
	answers, failed float64 // a second
	// answered: there was an answer, so there are latencies, in milliseconds. Of merged columns p50 is the median, the
	// others are the largest.
	answered      bool
	p50, p99, max float64
}

// merge merges columns of a width in seconds, the first of which begins at start, to at most most bins. The run ends at
// end, perhaps within the last column.
func merge(columns []verify.Column, start, width, end float64, most int) []bin {
	each := (len(columns) + most - 1) / most
	var bins []bin
	for i := 0; i < len(columns); i += each {
		some := columns[i:min(i+each, len(columns))]
		b := bin{from: start + float64(i)*width, to: start + float64(i+len(some))*width}
		b.add(some)
		seconds := b.to - b.from
		if end > b.from+width/2 {
			seconds = min(seconds, end-b.from)
		}
		b.answers /= seconds
		b.failed /= seconds
		bins = append(bins, b)
	}
	return bins
}

// add sums columns up.
func (b *bin) add(columns []verify.Column) {
	var medians []float64
	for _, c := range columns {
		b.answers += float64(c.Answers)
		b.failed += float64(c.Failed)
		if c.Answers > 0 {
			medians = append(medians, c.P50MS)
			b.p99, b.max = max(b.p99, c.P99MS), max(b.max, c.MaxMS)
		}
	}
	if b.answered = len(medians) > 0; b.answered {
		slices.Sort(medians)
		b.p50 = medians[len(medians)/2]
	}
}

// stretch is a part of an axis, in pixels, and the fault that was under way, nil if it was not one.
type stretch struct {
	from, to float64
	fault    *verify.Fault
}

// gapMin is how many pixels must be between two stretches, so that they are drawn as two.
const gapMin = 1

// join adds a stretch to a list that is sorted by from. It is merged with the last one if they are not apart.
func join(list []stretch, s stretch) []stretch {
	if n := len(list) - 1; n >= 0 && s.from < list[n].to+gapMin {
		list[n].to = max(list[n].to, s.to)
		list[n].fault = nil
		return list
	}
	return append(list, s)
}
