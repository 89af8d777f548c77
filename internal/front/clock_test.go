package front_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
)

// shown is a clock that shows what it is told.
type shown struct {
	reading interval.Reading
	err     error
}

func (s *shown) Now() (interval.Reading, error) { return s.reading, s.err }

const second = uint64(time.Second)

func TestUntilPast_WaitsForTheEarlierBound(t *testing.T) {
	ahead := func(d time.Duration) isotone.Timestamp {
		return isotone.Timestamp{Time: uint64(int64(5*second) + int64(d))}
	}
	for name, tt := range map[string]struct {
		at    isotone.Timestamp
		clock shown
		again time.Duration
		err   error
	}{
		"past":                   {ahead(-1), shown{interval.Reading{Term: 1, Earliest: 5 * second}, nil}, 0, nil},
		"at the earlier bound":   {ahead(0), shown{interval.Reading{Term: 1, Earliest: 5 * second}, nil}, 50 * time.Microsecond, nil},
		"a little ahead":         {ahead(time.Millisecond), shown{interval.Reading{Term: 1, Earliest: 5 * second}, nil}, time.Millisecond, nil},
		"far ahead":              {ahead(time.Second), shown{interval.Reading{Term: 1, Earliest: 5 * second}, nil}, 10 * time.Millisecond, nil},
		"centuries ahead":        {isotone.Timestamp{Time: math.MaxUint64}, shown{interval.Reading{Term: 1}, nil}, 10 * time.Millisecond, nil},
		"past, by an old bound":  {ahead(-1), shown{interval.Reading{Term: 1, Earliest: 5 * second}, isotone.ErrNoLeader}, 0, nil},
		"ahead, by an old bound": {ahead(time.Hour), shown{interval.Reading{Term: 1, Earliest: 5 * second}, isotone.ErrNoLeader}, 10 * time.Millisecond, nil},
		"nothing known":          {isotone.Timestamp{}, shown{interval.Reading{}, isotone.ErrNoLeader}, 10 * time.Millisecond, nil},
		"broken":                 {ahead(-1), shown{interval.Reading{Term: 1, Earliest: 5 * second}, isotone.ErrClock}, 0, isotone.ErrClock},
		"off":                    {ahead(-1), shown{interval.Reading{}, isotone.ErrNotFound}, 0, isotone.ErrNotFound},
	} {
		if again, err := front.UntilPast(&tt.clock, tt.at); again != tt.again || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, again, err, tt.again, tt.err)
		}
	}
}

func TestStamper_TimesAreConsecutiveAndOnlyGrow(t *testing.T) {
	c := &shown{reading: interval.Reading{Term: 1, Earliest: 900, Latest: 1000, Limit: 3000}}
	s := front.NewStamper(c)
	var last isotone.Timestamp
	for i, n := range []uint64{1, 1, 10, 1000} {
		made, err := s.Make(n)
		if err != nil || made.Count != n || made.First.Index < interval.IndexMin {
			t.Fatalf("%d: %+v, %v", i, made, err)
		}
		for j := range n {
			at := made.At(j)
			if at.Time < c.reading.Latest || at.Time > c.reading.Limit || !last.Before(at) || i+int(j) > 0 && (at.Time != last.Time+1 || at.Index != last.Index) {
				t.Fatalf("%v follows %v", at, last)
			}
			last = at
		}
	}
	if _, err := s.Make(1000); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("beyond the limit: %v", err)
	}
	if made, err := s.Make(989); err != nil || made.At(988).Time != c.reading.Limit {
		t.Errorf("up to the limit: %+v, %v", made, err)
	}
	if other, err := front.NewStamper(c).Make(1); err != nil || other.First.Index == last.Index {
		t.Errorf("two stampers have one generator: %v, %v", other, err)
	}
	for _, want := range []error{isotone.ErrNoLeader, isotone.ErrClock, isotone.ErrNotFound} {
		c.err = want
		if _, err := s.Make(1); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// One client that asks for many must not make those of the others wait long, nor take all that there are.
func TestStamper_DoesNotRunFarAhead(t *testing.T) {
	c := &shown{reading: interval.Reading{Term: 1, Earliest: second, Latest: second, Limit: 100 * second}}
	s := front.NewStamper(c)
	made := uint64(0)
	for {
		_, err := s.Make(front.StampsMax)
		if errors.Is(err, isotone.ErrOverloaded) {
			break
		}
		if made += front.StampsMax; err != nil || made > 10*uint64(time.Millisecond) {
			t.Fatalf("%d timestamps at once, %v", made, err)
		}
	}
	for i := range 1000 {
		if _, err := s.Make(1); err != nil {
			t.Fatalf("single timestamp %d beside many: %v", i, err)
		}
		_, _ = s.Make(front.StampsMax)
		c.reading.Latest++
	}
	c.reading.Latest += made
	if _, err := s.Make(1); err != nil {
		t.Errorf("when time has passed: %v", err)
	}
}

func TestNoClock_SaysWhomToAsk(t *testing.T) {
	if r, err := (front.NoClock{}).Now(); !errors.Is(err, isotone.ErrNotFound) || r != (interval.Reading{}) {
		t.Errorf("%+v, %v", r, err)
	}
}
