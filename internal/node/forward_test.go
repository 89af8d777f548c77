package node

import (
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// keeper keeps what it is to forward.
type keeper struct{ kept []*front.Batch }

func (k *keeper) Submit(b *front.Batch) { k.kept = append(k.kept, b) }
func (k *keeper) Turn(time.Duration)    {}
func (k *keeper) Close()                {}

func TestForward_TakesOnlyWhatALeaderCanAnswer(t *testing.T) {
	led := isotone.Errorf(isotone.CodeNotLeader, "node 2 leads")
	led.Leader = "b:1"
	for name, c := range map[string]struct {
		err   error
		local bool
		want  bool
	}{
		"another leads":             {err: led, want: true},
		"no leader is known":        {err: isotone.ErrNoLeader, want: true},
		"forwarded already":         {err: led, local: true},
		"answered":                  {},
		"overloaded":                {err: isotone.ErrOverloaded},
		"too late":                  {err: isotone.ErrDeadlineExceeded},
		"this node stops":           {err: errStopped},
		"this node has failed":      {err: errFailed},
		"a failure without a place": {err: isotone.Errorf(isotone.CodeInternal, "x")},
	} {
		k := &keeper{}
		b := &front.Batch{Err: c.err, Local: c.local}
		if got := forward(k, b); got != c.want || got != (len(k.kept) == 1) {
			t.Errorf("%s: %v, %d forwarded", name, got, len(k.kept))
		}
		if b.Err != nil && c.want || b.Err != c.err && !c.want {
			t.Errorf("%s: it now has the error %v", name, b.Err)
		}
		b.Err = c.err
		if forward(nil, b) {
			t.Errorf("%s: forwarded by nobody", name)
		}
	}
}
