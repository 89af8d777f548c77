package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTimeline_EachCommandAsksForItsOwn: none gets the timeline of another: neither in a pipeline or a transaction, nor by the batch or
// the command of before.
func TestTimeline_EachCommandAsksForItsOwn(t *testing.T) {
	short := string(array("TS", "TIMELINE", "a")) // is memorized
	long := string(array("TS64", "3", "QUORUM", "TIMELINE", strings.Repeat("b", 64)))
	plain := string(array("TS"))
	b := strings.Repeat("b", 64)
	for say, want := range map[string][]string{
		plain + short + short + plain + plain + long + long + plain:                           {" 1", "a 2", " 2", b + " 6", " 1"},
		short + plain + short + plain:                                                         {"a 1", " 1", "a 1", " 1"},
		short + short + short + string(array("TS", "TIMELINE", "c")) + short + plain:          {"a 3", "c 1", "a 1", " 1"},
		"MULTI\r\n" + short + plain + short + short + "EXEC\r\n" + plain:                      {"a 1", " 1", "a 2", " 1"},
		"MULTI\r\n" + short + "DISCARD\r\n" + plain:                                           {" 1"},
		plain + short + "RESET\r\n" + plain:                                                   {" 1", "a 1", " 1"},
		short + string(array("TS", "TIMELINE", "a b")) + plain:                                {"a 1", " 1"},
		string(array("TS", "TIMELINE", "a", "FLOOR", floor)) + short + plain:                  {"a 2", " 1"},
		string(array("TS", "TIMELINE", "a", "TRACEPARENT", traceparent)) + plain + "TS A\r\n": {"a 1", " 1"},
	} {
		for _, later := range []bool{false, true} {
			for _, size := range []int{1, 7, len(say)} {
				o := newOracle()
				o.later = later
				w := newTape(t, New(Config{Backend: o}))
				for piece := range slices.Chunk([]byte(say), size) {
					w.feed(piece)
				}
				w.finish(o)
				if got := asked(o); !slices.Equal(got, want) {
					t.Errorf("%q in pieces of %d, later %v: %q, want %q", say, size, later, got, want)
				}
			}
		}
	}
}

// asked returns the timelines that were asked for, and how many timestamps of each in a row.
func asked(o *oracle) (list []string) {
	for i := 0; i < len(o.batches); {
		timeline, sum := o.batches[i].Timeline, uint64(0)
		for ; i < len(o.batches) && o.batches[i].Timeline == timeline; i++ {
			sum += o.batches[i].Counts[0]
		}
		list = append(list, fmt.Sprint(timeline, " ", sum))
	}
	return list
}
