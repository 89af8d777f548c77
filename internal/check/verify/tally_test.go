package verify

import (
	"bytes"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

// TestTally_CountsEachAnswerThatIsNoNumber: also of a request of which a later call failed in another way.
func TestTally_CountsEachAnswerThatIsNoNumber(t *testing.T) {
	tally := newTally(1, 0)
	tally.begin(0)
	now := driver.Now()
	a := driver.Answer{
		Calls:  []driver.Call{{First: "abc", Count: 1, Began: now, Ended: now}, {First: "-1", Count: 1, Began: now, Ended: now}},
		Failed: &driver.Failed{Error: driver.Unavailable, Message: "it is gone"},
	}
	if tally.done(0, 0, a, nil) {
		t.Error("the answer is complete")
	}
	var r Result
	tally.fill(&r, RealTime)
	if r.Malformed != 2 || r.Failed != 3 || !r.Broken() {
		t.Errorf("%d malformed and %d failed, broken %v; want 2, 3 and true", r.Malformed, r.Failed, r.Broken())
	}
}

// TestTally_SilenceFollowsAFault: of two faults in one silence, each has a part. A silence that never ends counts, too.
func TestTally_SilenceFollowsAFault(t *testing.T) {
	const second = int64(1e9)
	tally := newTally(1, 0)
	start := tally.epoch
	answered := func(at int64) { tally.answered(op{ended: start + at, began: start + at}) }
	answered(9 * second)
	tally.faults = []*fault{
		{at: start + 10*second, end: start + 12*second}, {at: start + 30*second, end: start + 31*second},
		{at: start + 50*second, end: start + 51*second},
	}
	answered(34 * second)
	answered(49 * second)
	tally.last -= 100 * second // so that all of this was before now
	for _, f := range tally.faults {
		f.at, f.end = f.at-100*second, f.end-100*second
	}
	tally.finish()
	for i, least := range []float64{20_000, 4_000, 50_000} {
		if got := tally.faults[i].SilentMS; got < least || i < 2 && got > least {
			t.Errorf("fault %d: %g ms without an answer, want %g", i, got, least)
		}
	}
}

// TestTally_ClipsLongMessages: a thousand answers of megabytes would not fit the memory, nor a page.
func TestTally_ClipsLongMessages(t *testing.T) {
	tally := newTally(1, 0)
	long := "€" + strings.Repeat("€€€", messageMax)
	for range 2 {
		tally.done(0, 0, driver.Answer{}, &driver.Error{Kind: driver.Unavailable, Message: long})
	}
	tally.beginFault(Fault{Kind: Member})
	tally.note(long)
	var r Result
	tally.fill(&r, RealTime)
	for _, got := range []string{r.Errors[0].Message, r.Faults[0].Note} {
		if len(got) > messageMax+len("…") || !strings.HasPrefix(long, strings.TrimSuffix(got, "…")) || r.Errors[0].Count != 2 {
			t.Errorf("%d times %d bytes: %q", r.Errors[0].Count, len(got), got)
		}
	}
}

// TestResult_ListsAreNeverNull in JSON: a script goes through them.
func TestResult_ListsAreNeverNull(t *testing.T) {
	var out bytes.Buffer
	if err := (&Result{}).WriteJSON(&out); err != nil || strings.Contains(out.String(), "null") {
		t.Errorf("%v, %s", err, out.String())
	}
}
