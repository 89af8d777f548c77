package client

import (
	"errors"
	"testing"

	"github.com/isotone/isotone"
)

// crowded returns a pool of two stripes that sends nothing.
func crowded(queueMax int) *pool {
	return newPool(&Client{opt: Options{QueueMax: queueMax, Conns: 2}}, 2, isotone.RangeCountMax, kindDefault)
}

// squeezed makes a call that tries the first stripe, as it is, before the others.
func squeezed(p *pool, count uint64) error {
	q := &p.queues[0]
	b, _, result := q.join(count)
	if result <= joinedFirst {
		return nil
	}
	_, _, err := p.joinOther(q, b, count, result)
	return err
}

// TestPool_FindsRoomInOtherStripes: a call is refused only if it fits in none.
func TestPool_FindsRoomInOtherStripes(t *testing.T) {
	// The other stripe has no numbers left, and has to be rotated.
	p := crowded(5)
	p.queues[1].join(isotone.RangeCountMax)
	for i := range 4 {
		if err := squeezed(p, 1); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	// The first stripe has no numbers left and cannot be rotated; the other is empty.
	p = crowded(2)
	for i := range 4 {
		if err := squeezed(p, isotone.RangeCountMax); err != nil {
			t.Errorf("huge call %d: %v", i, err)
		}
	}
	if err := squeezed(p, isotone.RangeCountMax); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	// After the end of one stripe, all refuse calls.
	p = crowded(2)
	p.queues[1].join(1)
	p.queues[0].end(ErrClosed)
	if err := squeezed(p, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
