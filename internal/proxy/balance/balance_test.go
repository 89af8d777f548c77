package balance_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/proxy/balance"
	"pgregory.net/rapid"
)

// backends returns a set of backends with these weights.
func backends(t testing.TB, weights ...int) *balance.Set {
	t.Helper()
	var list []balance.Backend
	for i, w := range weights {
		list = append(list, balance.Backend{Name: fmt.Sprintf("10.0.0.%d:80", i), Weight: w})
	}
	s, err := balance.NewSet(list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keyed(key string) balance.Request { return balance.Request{Key: balance.Hash(key), Keyed: true} }

// request is the i-th of many, each with a key of its own.
func request(i int) balance.Request { return keyed(fmt.Sprint("key ", i)) }

func picker(s balance.Strategy) balance.Picker {
	seed := balance.Seeded(1)
	return balance.New(s, &seed)
}

func TestPicker_SharesByWeight(t *testing.T) {
	const requests = 30000
	weights := []int{1, 2, 3, 4}
	for _, strategy := range balance.Strategies() {
		s, p := backends(t, weights...), picker(strategy)
		counts := make([]int, len(weights))
		for i := range requests {
			at := p.Pick(s, request(i))
			counts[at]++
			// Requests stay in progress, so that the strategies see different loads.
			s.Begin(at)
		}
		for i, w := range weights {
			want := float64(requests*w) / 10
			if got := float64(counts[i]); math.Abs(got-want) > want/20 {
				t.Errorf("%s: backend %d of weight %d got %v requests of %d, want about %v", strategy, i, w, got, requests, want)
			}
		}
	}
}

func TestSticky_SharesKeysByWeight(t *testing.T) {
	const keys = 30000
	for _, weights := range [][]int{{1, 1, 1, 1, 1}, {1, 2, 3, 4}} {
		s, p := backends(t, weights...), picker(balance.Sticky)
		counts, total := make([]int, len(weights)), 0
		for i := range keys {
			counts[p.Pick(s, request(i))]++
		}
		for _, w := range weights {
			total += w
		}
		for i, w := range weights {
			want := float64(keys*w) / float64(total)
			if got := float64(counts[i]); math.Abs(got-want) > want/20 {
				t.Errorf("weights %v: backend %d has %v keys, want about %v", weights, i, got, want)
			}
		}
	}
}

func TestRoundRobin_IsExactInEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 8).Draw(t, "weights")
		var list []balance.Backend
		total := 0
		for i, w := range weights {
			list = append(list, balance.Backend{Name: fmt.Sprint(i), Weight: w})
			total += w
		}
		s, err := balance.NewSet(list...)
		if err != nil {
			t.Fatal(err)
		}
		p := picker(balance.RoundRobin)
		for round := range 3 {
			counts := make([]int, len(weights))
			for range total {
				counts[p.Pick(s, balance.Request{})]++
			}
			for i, w := range weights {
				if counts[i] != w {
					t.Fatalf("round %d of weights %v: %v", round, weights, counts)
				}
			}
		}
	})
}

func TestRoundRobin_Interleaves(t *testing.T) {
	s, p := backends(t, 5, 1, 1), picker(balance.RoundRobin)
	var got []int
	for range 7 {
		got = append(got, p.Pick(s, balance.Request{}))
	}
	if want := "[0 0 1 0 2 0 0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestLeastBusy_TakesTheLeastLoadForItsWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "n")
		var list []balance.Backend
		weights := make([]int, n)
		for i := range n {
			weights[i] = rapid.IntRange(1, 5).Draw(t, "weight")
			list = append(list, balance.Backend{Name: fmt.Sprint(i), Weight: weights[i]})
		}
		s, _ := balance.NewSet(list...)
		for i := range n {
			for range rapid.IntRange(0, 20).Draw(t, "load") {
				s.Begin(i)
			}
		}
		at := picker(balance.LeastBusy).Pick(s, balance.Request{})
		for i := range n {
			if s.Load(i)*weights[at] < s.Load(at)*weights[i] {
				t.Fatalf("chose %d with load %d and weight %d; %d has %d and %d", at, s.Load(at), weights[at], i, s.Load(i), weights[i])
			}
		}
	})
}

func TestLeastBusy_TakesTurnsAmongEquals(t *testing.T) {
	s, p := backends(t, 1, 1, 1), picker(balance.LeastBusy)
	for i := range 9 {
		if got := p.Pick(s, balance.Request{}); got != i%3 {
			t.Errorf("choice %d of idle backends: %d", i, got)
		}
	}
}

// TestPicker_IdleBackendsGetTheirShareOfFewRequests: with one request at a time, every strategy
// must use backends of less weight too. Otherwise their caches would be cold, and their
// failures would go unnoticed.
func TestPicker_IdleBackendsGetTheirShareOfFewRequests(t *testing.T) {
	for _, strategy := range []balance.Strategy{balance.Random, balance.RoundRobin, balance.LeastBusy, balance.TwoChoices} {
		s, p := backends(t, 1, 3), picker(strategy)
		light := 0
		for i := range 4000 {
			if p.Pick(s, request(i)) == 0 {
				light++
			}
		}
		if light < 800 || light > 1200 {
			t.Errorf("%s: the lighter one of 1 and 3 got %d of 4000", strategy, light)
		}
	}
}

// TestTwoChoices_KeepsLoadsClose compares the most loaded of 100 backends: random choice
// exceeds the average by far more than two choices do.
func TestTwoChoices_KeepsLoadsClose(t *testing.T) {
	worst := func(strategy balance.Strategy) int {
		weights := make([]int, 100)
		s, p := backends(t, weights...), picker(strategy)
		most := 0
		for range 1000 {
			at := p.Pick(s, balance.Request{})
			s.Begin(at)
			most = max(most, s.Load(at))
		}
		return most
	}
	if one, two := worst(balance.Random), worst(balance.TwoChoices); two > 13 || one <= two {
		t.Errorf("with 10 on average the most loaded has %d by two choices, %d by one", two, one)
	}
}

func TestSticky_MovesOnlyTheKeysOfTheOneThatLeaves(t *testing.T) {
	for _, weights := range [][]int{{1, 1, 1, 1, 1, 1}, {1, 5, 2, 2, 3}} {
		s, p := backends(t, weights...), picker(balance.Sticky)
		const keys = 5000
		var before [keys]int
		for i := range keys {
			before[i] = p.Pick(s, request(i))
		}
		moved := make([]int, len(weights))
		s.SetDown(1, true)
		for i := range keys {
			after := p.Pick(s, request(i))
			if before[i] != 1 && after != before[i] {
				t.Fatalf("key %d moved from %d to %d when 1 left", i, before[i], after)
			}
			if before[i] == 1 {
				moved[after]++
			}
		}
		for i, n := range moved {
			if (n == 0) != (i == 1) {
				t.Errorf("weights %v: the keys of 1 went to %v", weights, moved)
			}
		}
		s.SetDown(1, false)
		for i := range keys {
			if after := p.Pick(s, request(i)); after != before[i] {
				t.Fatalf("key %d is at %d, not %d, when 1 is back", i, after, before[i])
			}
		}
	}
}

func TestSticky_DoesNotDependOnTheOrderOfBackends(t *testing.T) {
	a, _ := balance.NewSet(balance.Backend{Name: "x"}, balance.Backend{Name: "y", Weight: 2}, balance.Backend{Name: "z"})
	b, _ := balance.NewSet(balance.Backend{Name: "z"}, balance.Backend{Name: "x"}, balance.Backend{Name: "y", Weight: 2})
	p := picker(balance.Sticky)
	for i := range 1000 {
		if one, other := p.Pick(a, request(i)), p.Pick(b, request(i)); "xyz"[one] != "zxy"[other] {
			t.Fatalf("key %d: %d and %d", i, one, other)
		}
	}
}

// TestSticky_KeepsTheLoadBound has requests come and go, most of them with one key.
func TestSticky_KeepsTheLoadBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "backends")
		weights, total := make([]int, n), 0
		var list []balance.Backend
		for i := range n {
			weights[i] = rapid.IntRange(1, 4).Draw(t, "weight")
			total += weights[i]
			list = append(list, balance.Backend{Name: fmt.Sprint(i), Weight: weights[i]})
		}
		s, _ := balance.NewSet(list...)
		percent := rapid.SampledFrom([]int{0, 100, 125, 400, balance.StickyPercentMax}).Draw(t, "percent")
		p := balance.NewSticky(percent)
		if percent == 0 {
			percent = balance.StickyPercent
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var under []int
		for range 400 {
			if len(under) > 0 && random.IntN(5) < 2 {
				k := random.IntN(len(under))
				s.End(under[k])
				under[k] = under[len(under)-1]
				under = under[:len(under)-1]
				continue
			}
			key := "popular"
			if random.IntN(4) == 0 {
				key = fmt.Sprint(random.IntN(50))
			}
			at := p.Pick(s, keyed(key))
			s.Begin(at)
			under = append(under, at)
			bound := math.Ceil(float64(percent) / 100 * float64(len(under)) * float64(weights[at]) / float64(total))
			if float64(s.Load(at)) > bound {
				t.Fatalf("backend %d of weight %d/%d has %d of %d requests, more than %v", at, weights[at], total, s.Load(at), len(under), bound)
			}
		}
	})
}

func TestPicker_KeepsToWhatIsUsable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom(balance.Strategies()).Draw(t, "strategy")
		n := rapid.IntRange(1, 70).Draw(t, "n")
		var list []balance.Backend
		for i := range n {
			list = append(list, balance.Backend{Name: fmt.Sprint(i), Weight: i % 4})
		}
		s, _ := balance.NewSet(list...)
		seed := balance.Seeded(rapid.Uint64().Draw(t, "seed"))
		p := balance.New(strategy, &seed)
		for step := range 30 {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				s.SetDown(i, !s.Down(i))
			case 1:
				s.SetEjected(i, !s.Ejected(i))
			}
			allEjected := true
			for i := range n {
				allEjected = allEjected && (s.Down(i) || s.Ejected(i))
			}
			may := func(i int, tried *balance.Mask) bool {
				return !s.Down(i) && (!s.Ejected(i) || allEjected) && !tried.Has(i)
			}
			usable := 0
			for i := range n {
				if may(i, new(balance.Mask)) {
					usable++
				}
			}
			r := balance.Request{Key: seed.Uint64(), Keyed: step%2 == 0}
			for tries := 0; ; tries++ {
				left := 0
				for i := range n {
					if may(i, &r.Tried) {
						left++
					}
				}
				at := p.Pick(s, r)
				if left == 0 && at == balance.None {
					if tries != usable {
						t.Fatalf("%d tries, %d usable", tries, usable)
					}
					break
				}
				if at == balance.None || !may(at, &r.Tried) {
					t.Fatalf("%s chose %d of %d possible ones; down %v", strategy, at, left, at >= 0 && s.Down(at))
				}
				r.Tried.Add(at)
			}
		}
	})
}

func TestPicker_ChoosesTheSameForTheSameInputs(t *testing.T) {
	for _, strategy := range balance.Strategies() {
		run := func() (got []int) {
			seed := balance.Seeded(7)
			s, p := backends(t, 1, 2, 3), balance.New(strategy, &seed)
			for i := range 500 {
				at := p.Pick(s, request(i%13))
				s.Begin(at)
				got = append(got, at)
				if i%3 == 0 {
					s.End(got[i/2])
				}
				s.SetEjected(1, i%50 > 40)
			}
			return got
		}
		if a, b := fmt.Sprint(run()), fmt.Sprint(run()); a != b {
			t.Errorf("%s: two runs differ", strategy)
		}
	}
}

func TestSet_RefusesWhatMakesNoSense(t *testing.T) {
	for name, list := range map[string][]balance.Backend{
		"none":             nil,
		"too many":         make([]balance.Backend, balance.BackendsMax+1),
		"twice":            {{Name: "a"}, {Name: "a"}},
		"negative weight":  {{Name: "a", Weight: -1}},
		"excessive weight": {{Name: "a", Weight: balance.WeightMax + 1}},
	} {
		if _, err := balance.NewSet(list...); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := balance.ParseStrategy("best"); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error(err)
	}
	for _, s := range balance.Strategies() {
		if got, err := balance.ParseStrategy(string(s)); got != s || err != nil {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
}

func TestPicker_DoesNotAllocate(t *testing.T) {
	for _, strategy := range balance.Strategies() {
		s, p, r := backends(t, 1, 2, 3), picker(strategy), keyed("k")
		if got := testing.AllocsPerRun(100, func() {
			at := p.Pick(s, r)
			s.Begin(at)
			s.End(at)
		}); got != 0 {
			t.Errorf("%s: %v allocations", strategy, got)
		}
	}
	s := backends(t, 1, 1)
	e, b := balance.NewEjector(s, balance.EjectorConfig{}), balance.NewBudget(balance.BudgetConfig{})
	if got := testing.AllocsPerRun(100, func() { e.Report(1, 0, false); b.Request(1); b.Take(1) }); got != 0 {
		t.Errorf("accounts: %v allocations", got)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, strategy := range balance.Strategies() {
		for _, n := range []int{3, 32, balance.BackendsMax} {
			b.Run(fmt.Sprintf("%s/%d", strategy, n), func(b *testing.B) {
				weights := make([]int, n)
				s, p := backends(b, weights...), picker(strategy)
				r := keyed("k")
				b.ReportAllocs()
				for b.Loop() {
					at := p.Pick(s, r)
					s.Begin(at)
					s.End(at)
				}
			})
		}
	}
}
