package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

func TestHistogram_BucketsAreWithinASixteenth(t *testing.T) {
	for d := time.Duration(0); d < time.Hour; d = d*9/8 + 1 {
		if got := upper(bucket(d)); got < d || float64(got) > float64(d)*17/16 {
			t.Fatalf("%v is in the bucket up to %v", d, got)
		}
	}
}

func TestQuantile_IsTheLatencyOfThatShare(t *testing.T) {
	var r result
	for range 99 {
		r.note(10, nil)
	}
	r.note(1000, nil)
	r.note(1, errors.New("failed"))
	if r.quantile(0.5) != 10 || r.quantile(0.99) < 1000 || r.failed != 1 || r.calls != 100 {
		t.Errorf("p50 %v, p99 %v, %d failed of %d", r.quantile(0.5), r.quantile(0.99), r.failed, r.calls)
	}
}

func counter(name string, step uint64) *system {
	var last atomic.Uint64
	next := func(context.Context) (isotone.Timestamp64, error) {
		time.Sleep(time.Microsecond)
		return isotone.Timestamp64(last.Add(step)), nil
	}
	begin := func(ctx context.Context) func() (isotone.Timestamp64, error) {
		return func() (isotone.Timestamp64, error) { return next(ctx) }
	}
	return &system{name, next, begin, func() error { return nil }}
}

func TestMeasure_CountsAnswers(t *testing.T) {
	for _, inFlight := range []int{1, 8} {
		r, err := measure(t.Context(), counter("test", 1), 4, inFlight, 0, 20*time.Millisecond)
		if err != nil || r.calls == 0 || r.failed != 0 || r.rate() <= 0 {
			t.Errorf("%d under way: %d calls, %d failed, %v", inFlight, r.calls, r.failed, err)
		}
	}
}

func TestMeasure_FindsTimestampsOutOfOrder(t *testing.T) {
	for _, inFlight := range []int{1, 8} {
		if _, err := measure(t.Context(), counter("test", 0), 1, inFlight, 0, time.Minute); !errors.Is(err, errOrder) {
			t.Errorf("%d under way: %v", inFlight, err)
		}
	}
}

func TestMeasure_FailsWithoutAnswers(t *testing.T) {
	s := &system{name: "down", next: func(context.Context) (isotone.Timestamp64, error) { return 0, errors.New("down") }}
	if _, err := measure(t.Context(), s, 2, 1, 0, 20*time.Millisecond); err == nil {
		t.Error("no error")
	}
}

func TestPrintRow_HasTheMedianRound(t *testing.T) {
	var out bytes.Buffer
	rounds := make([]result, 3)
	for i := range rounds {
		rounds[i].took = time.Second
		for range 10 * (3 - i) {
			rounds[i].note(time.Millisecond, nil)
		}
	}
	printRow(&out, 64, "PD", rounds)
	if want := "64\tPD\t20\t10\t30\t"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestCheck_RefusesWhatCannotBeMeasured(t *testing.T) {
	good := command{PD: []string{"a:1"}, Callers: []int{1}, InFlight: 1, Rounds: 1, Duration: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*command){
		"no system": func(c *command) { c.PD = nil }, "no callers": func(c *command) { c.Callers = nil }, "0 callers": func(c *command) { c.Callers = []int{0} },
		"nothing under way": func(c *command) { c.InFlight = 0 }, "no rounds": func(c *command) { c.Rounds = 0 }, "no time": func(c *command) { c.Duration = 0 }, "years": func(c *command) { c.Warmup = 1 << 62 },
	} {
		c := good
		change(&c)
		if c.check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
