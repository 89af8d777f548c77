package gateway

import (
	"io"
	"slices"
	"testing"

	"github.com/isotone/isotone/internal/front/pd"
)

func TestCollect_TakesAllThatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		waiting []request
		counts  []uint64
		next    request
	}{
		"nothing":           {nil, []uint64{7}, request{}},
		"requests":          {[]request{{count: 1}, {count: 500}, {count: 2}}, []uint64{7, 1, 500, 2}, request{}},
		"one without place": {[]request{{count: 1}, {count: CountMax}, {count: 2}}, []uint64{7, 1}, request{count: CountMax}},
		"the end":           {[]request{{count: 1}, {end: io.EOF}}, []uint64{7, 1}, request{end: io.EOF}},
	} {
		queue := make(chan request, queueMax)
		for _, r := range c.waiting {
			queue <- r
		}
		var b pd.Batch
		if next := collect(&b, request{count: 7}, queue); next != c.next || !slices.Equal(b.Counts, c.counts) {
			t.Errorf("%s: the batch has %v, and %v follows; want %v and %v", name, b.Counts, next, c.counts, c.next)
		}
	}
}
