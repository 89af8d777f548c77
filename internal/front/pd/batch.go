package pd

import "github.com/isotone/isotone"

// CountMax is the largest count of one request: half of a millisecond's timestamps. The Go client of
// PD asks for 10,000 at most.
const CountMax = isotone.Range64CountMax / 2

// Batch is requests of one stream that share a request to the cluster.
//
// A client of PD counts the timestamps of an answer within one millisecond. Timestamps of the cluster
// are consecutive across milliseconds, and there is no telling where a range begins. So a batch asks
// for more than its total: the largest count less one. A range is at most a millisecond long, so at
// most one boundary lies in it. The request that would cross it begins at the boundary instead, which
// drops less than its own count. So all fit, whatever the range, and no request is repeated.
type Batch struct {
	// Counts has the requests, in order.
	Counts  []uint64
	total   uint64
	largest uint64
}

// requestsMax bounds the requests of a batch, and so the answers that wait for a client that does not read: 50 KB.
const requestsMax = 1024

// countsKept bounds the capacity that an empty batch keeps: its call may wait for long.
const countsKept = 64

// Reset empties the batch.
func (b *Batch) Reset() {
	if *b = (Batch{Counts: b.Counts[:0]}); cap(b.Counts) > countsKept {
		b.Counts = nil
	}
}

// Add reports whether count, 1 to CountMax, still fits. The first always does.
func (b *Batch) Add(count uint64) bool {
	total, largest := b.total+count, max(b.largest, count)
	if total+largest-1 > isotone.Range64CountMax || len(b.Counts) >= requestsMax {
		return false
	}
	b.Counts, b.total, b.largest = append(b.Counts, count), total, largest
	return true
}

// Total returns how many timestamps the requests have.
func (b *Batch) Total() uint64 { return b.total }

// Ask returns how many timestamps to request, at most isotone.Range64CountMax. The batch must not be
// empty.
func (b *Batch) Ask() uint64 { return b.total + b.largest - 1 }

// Place calls answer with the largest timestamp of each request, in order, given a range of Ask
// timestamps. It ends with the first error of answer.
func (b *Batch) Place(r isotone.Range64, answer func(count uint64, last isotone.Timestamp64) error) error {
	next := r.First
	for _, count := range b.Counts {
		last := next + isotone.Timestamp64(count-1)
		if last.Milli() != next.Milli() {
			next = isotone.NewTimestamp64(last.Milli(), 0)
			last = next + isotone.Timestamp64(count-1)
		}
		if last > r.Last() {
			panic("pd: a request does not fit into the range of its batch")
		}
		if err := answer(count, last); err != nil {
			return err
		}
		next = last + 1
	}
	return nil
}
