package verify

import (
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
