package demoscale

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// waitMax is the largest recorded wait; longer ones count as that.
const waitMax = 2 * durationMax

// tally counts the answers of clients.
type tally struct {
	waits      *hdrhistogram.Histogram // in microseconds
	hits       int
	answers    int
	unfinished int     // requests cut off at the end
	served     [][]int // answers, by word and worker
}

func newTally(words, workers int) *tally {
	t := &tally{waits: hdrhistogram.New(1, waitMax.Microseconds(), 2), served: make([][]int, words)}
	for i := range t.served {
		t.served[i] = make([]int, workers)
	}
	return t
}

// answered counts an answer.
func (t *tally) answered(word, worker int, hit bool, wall time.Duration) {
	t.wait(wall)
	t.answers++
	t.served[word][worker]++
	if hit {
		t.hits++
	}
}

// unanswered counts a request that is cut off at the end, with its wait until then. Otherwise a
// strategy that answers fewer requests would look faster.
func (t *tally) unanswered(wall time.Duration) {
	t.wait(wall)
	t.unfinished++
}

func (t *tally) wait(wall time.Duration) {
	_ = t.waits.RecordValue(min(wall, waitMax).Microseconds())
}

func (t *tally) add(other *tally) {
	t.waits.Merge(other.waits)
	t.hits += other.hits
	t.answers += other.answers
	t.unfinished += other.unfinished
	for word, row := range other.served {
		for worker, n := range row {
			t.served[word][worker] += n
		}
	}
}

// result is the result of one trial.
type result struct {
	trial
	Rate       float64 `json:"requestsPerSecond"`
	P50        float64 `json:"p50Seconds"`
	P99        float64 `json:"p99Seconds"`
	HitRate    float64 `json:"hitRate"`
	Answers    int     `json:"answers"`
	Unfinished int     `json:"unfinished"`
	// PerWorker has the answers by worker.
	PerWorker []int `json:"perWorker"`
	// Served has the answers by word and worker.
	Served [][]int `json:"served"`
}

func (t *tally) result(of trial, span time.Duration) result {
	r := result{
		trial: of, Rate: float64(t.answers) / span.Seconds(),
		P50: seconds(t.waits.ValueAtQuantile(50)), P99: seconds(t.waits.ValueAtQuantile(99)),
		HitRate: float64(t.hits) / float64(max(t.answers, 1)),
		Answers: t.answers, Unfinished: t.unfinished, PerWorker: make([]int, of.Workers), Served: t.served,
	}
	for _, row := range t.served {
		for worker, n := range row {
			r.PerWorker[worker] += n
		}
	}
	return r
}

func seconds(micros int64) float64 { return (time.Duration(micros) * time.Microsecond).Seconds() }
