package node

import (
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// recorder keeps what it is to forward.
type recorder struct{ kept []*front.Batch }

func (r *recorder) Submit(b *front.Batch) { r.kept = append(r.kept, b) }
func (r *recorder) Turn(time.Duration)    {}
func (r *recorder) Close()                {}

func TestForward_TakesOnlyWhatAnotherNodeCanAnswer(t *testing.T) {
	led := isotone.Errorf(isotone.CodeNotLeader, "node 2 leads")
	led.Leader = "b:1"
	for name, c := range map[string]struct {
		err      error
		local    bool
		timeline string
		want     bool
	}{
		"another leads":             {err: led, want: true},
		"no leader is known":        {err: isotone.ErrNoLeader, want: true},
		"forwarded already":         {err: led, local: true},
		"another owns the timeline": {err: led, timeline: "a", want: true},
		"a timeline between owners": {err: isotone.ErrNoLeader, timeline: "a", want: true},
		"there is no such timeline": {err: isotone.ErrNotFound, timeline: "a"},
		"its quota is used up":      {err: isotone.ErrQuotaExceeded, timeline: "a"},
		"answered":                  {},
		"overloaded":                {err: isotone.ErrOverloaded},
		"too late":                  {err: isotone.ErrDeadlineExceeded},
		"this node stops":           {err: errStopped},
		"this node has failed":      {err: errFailed},
		"a failure without a place": {err: isotone.Errorf(isotone.CodeInternal, "x")},
	} {
		k := &recorder{}
		b := &front.Batch{Err: c.err, Local: c.local, Timeline: c.timeline, Floor: isotone.Timestamp{Time: 7}}
		done := 0
		b.Done = func(*front.Batch) { done++ }
		answer(k, b)
		if forwarded := len(k.kept) == 1; forwarded != c.want || done == len(k.kept) {
			t.Errorf("%s: %d forwarded, %d answered", name, len(k.kept), done)
		} else if forwarded && k.kept[0].Floor.Time != 7 {
			t.Errorf("%s: forwarded without its floor", name)
		}
		if b.Err != nil && c.want || b.Err != c.err && !c.want {
			t.Errorf("%s: it now has the error %v", name, b.Err)
		}
		b.Err, done = c.err, 0
		if answer(nil, b); done != 1 {
			t.Errorf("%s: answered %d times without a forwarder", name, done)
		}
	}
}
