package snowflake_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

func TestErrors_AreToldApartAndHaveACode(t *testing.T) {
	clock := &snowflake.InvalidSystemClock{Fault: snowflake.ClockBehind, Now: 5, Bound: 10}
	all := []struct {
		err  error
		code *isotone.Error
	}{
		{snowflake.ErrExhausted, isotone.ErrOverloaded},
		{snowflake.ErrLeaseEnded, isotone.ErrOverloaded},
		{snowflake.ErrLeaseNotBegun, isotone.ErrOverloaded},
		{snowflake.ErrBatch, isotone.ErrInvalidArgument},
		{snowflake.ErrInvalidSystemClock, isotone.ErrClock},
	}
	for i, c := range all {
		wrapped := fmt.Errorf("an ID: %w", c.err)
		for j, other := range all {
			if got := errors.Is(wrapped, other.err); got != (i == j) {
				t.Errorf("%v is %v: %v", c.err, other.err, got)
			}
		}
		for _, code := range []*isotone.Error{isotone.ErrOverloaded, isotone.ErrInvalidArgument, isotone.ErrClock, isotone.ErrInternal} {
			if got := errors.Is(wrapped, code); got != (code == c.code) {
				t.Errorf("%v is %v: %v", c.err, code, got)
			}
		}
		var e *isotone.Error
		if !errors.As(wrapped, &e) || e.Code != c.code.Code || e.Message == "" {
			t.Errorf("%v holds %+v", c.err, e)
		}
	}
	if !errors.Is(fmt.Errorf("an ID: %w", clock), snowflake.ErrInvalidSystemClock) || !errors.Is(clock, isotone.ErrClock) {
		t.Error("an InvalidSystemClock does not match")
	}
	if clock.Is(clock) || !clock.Is(snowflake.ErrInvalidSystemClock) {
		t.Error("it matches an error other than the sentinel")
	}
}

func TestInvalidSystemClock_SaysWhatIsWrong(t *testing.T) {
	for fault, want := range map[snowflake.ClockFault]string{
		snowflake.ClockBehind:       "clock: the clock went back: it is at 5 ms, 3 ms behind the last ID",
		snowflake.ClockBeforeLayout: "clock: the clock is at 5 ms, before the first ID of the layout, at 8 ms",
		snowflake.ClockAfterLayout:  "clock: the clock is at 5 ms, and IDs would go beyond the last of the layout, at 8 ms",
	} {
		err := &snowflake.InvalidSystemClock{Fault: fault, Now: 5, Bound: 8}
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		var e *isotone.Error
		if !errors.As(error(err), &e) || e.Error() != want {
			t.Errorf("the root package has %q, want %q", e, want)
		}
	}
}
