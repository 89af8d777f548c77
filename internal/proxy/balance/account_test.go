package balance_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/proxy/balance"
	"pgregory.net/rapid"
)

const second = time.Second

func TestEjector_EjectsAfterFailuresInARow(t *testing.T) {
	s := backends(t, 1, 1)
	e := balance.NewEjector(s, balance.EjectorConfig{FailuresMax: 3, Base: second})
	for _, ok := range []bool{false, false, true, false, false} {
		if e.Report(0, 0, ok) || s.Ejected(0) {
			t.Fatal("ejected before three failures in a row")
		}
	}
	if !e.Report(0, 0, false) || !s.Ejected(0) {
		t.Fatal("not ejected after three failures in a row")
	}
	e.Expire(second - 1)
	if !s.Ejected(0) {
		t.Error("in again before its time")
	}
	e.Expire(second)
	if s.Ejected(0) {
		t.Error("out for longer than its time")
	}
}

func TestEjector_DoublesForThoseThatFailAgainAndForgives(t *testing.T) {
	s := backends(t, 1, 1)
	e := balance.NewEjector(s, balance.EjectorConfig{FailuresMax: 1, Base: second, Max: 5 * second})
	lasts := func(from time.Duration) (d time.Duration) {
		if !e.Report(from, 0, false) {
			t.Fatalf("not ejected at %v", from)
		}
		for d = 0; s.Ejected(0); d += second / 10 {
			e.Expire(from + d + second/10)
		}
		return d
	}
	now := time.Duration(0)
	for i, want := range []time.Duration{second, 2 * second, 4 * second, 5 * second, 5 * second} {
		got := lasts(now)
		if got != want {
			t.Errorf("ejection %d lasts %v, want %v", i, got, want)
		}
		now += got
	}
	if got := lasts(now + 4*second); got != 2*second {
		t.Errorf("after four quiet seconds it lasts %v, want 2 s: five levels, less four", got)
	}
	if got := lasts(now + time.Hour); got != second {
		t.Errorf("after an hour it lasts %v", got)
	}
}

func TestEjector_LeavesHalfOfThemIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		var list []balance.Backend
		for i := range n {
			list = append(list, balance.Backend{Name: string(rune('a' + i))})
		}
		s, _ := balance.NewSet(list...)
		e := balance.NewEjector(s, balance.EjectorConfig{FailuresMax: 2, Base: second})
		now := time.Duration(0)
		for range 100 {
			now += time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond
			e.Report(now, rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, 9).Draw(t, "ok") == 0)
			out := 0
			for i := range n {
				if s.Ejected(i) {
					out++
				}
			}
			if allowed := max(1, n/2); out > allowed || n == 1 && out > 0 {
				t.Fatalf("%d of %d are ejected", out, n)
			}
		}
	})
}

// TestBudget_HoldsInEveryWindow compares the budget with a count of all requests and retries.
func TestBudget_HoldsInEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent, reserve := rapid.IntRange(1, 50).Draw(t, "percent"), rapid.IntRange(1, 5).Draw(t, "reserve")
		b := balance.NewBudget(balance.BudgetConfig{Percent: percent, Reserve: reserve})
		var requests, retries []int64 // when, in seconds
		since := func(list []int64, from int64) (n int) {
			for _, at := range list {
				if at > from {
					n++
				}
			}
			return n
		}
		now := time.Duration(0)
		for range 300 {
			now += time.Duration(rapid.SampledFrom([]int{0, 0, 0, 100, 1000, 5000, 30000}).Draw(t, "ms")) * time.Millisecond
			at := int64(now / second)
			if rapid.Bool().Draw(t, "request") {
				b.Request(now)
				requests = append(requests, at)
				continue
			}
			allowed := since(requests, at-10)*percent/100 + reserve*10
			may := since(retries, at-10) < allowed
			if got := b.Take(now); got != may {
				t.Fatalf("at %v, after %d requests and %d retries in ten seconds: %v", now, since(requests, at-10), since(retries, at-10), got)
			}
			if may {
				retries = append(retries, at)
			}
		}
	})
}

func TestBudget_CanForbidAll(t *testing.T) {
	b := balance.NewBudget(balance.BudgetConfig{Percent: -1, Reserve: -1})
	for range 1000 {
		b.Request(0)
	}
	if b.Take(0) {
		t.Error("a retry without a budget")
	}
}
