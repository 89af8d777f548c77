package verify

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/isotone/isotone"
)

// increasing is an object that hands out ranges, each above the one before, for Porcupine. The state is the last number.
var increasing = porcupine.Model{
	Init: func() any { return isotone.Timestamp{} },
	Step: func(state, _, output any) (bool, any) {
		all := output.(isotone.Range)
		return state.(isotone.Timestamp).Before(all.First), all.Last()
	},
}

// strongest returns the strongest order that a history is in: real-time order as Porcupine says, the others by comparing all
// numbers, or all calls of a client. The calls are in the order in which they began.
func strongest(list []op) (held Order) {
	seen, last := map[isotone.Timestamp]bool{}, map[int]isotone.Timestamp{}
	held = PerClient
	var operations []porcupine.Operation
	for _, o := range list {
		for n := o.numbers.First; n.Compare(o.numbers.Last()) <= 0; n.Index++ {
			if seen[n] {
				return ""
			}
			seen[n] = true
		}
		if !last[o.client].Before(o.numbers.First) {
			held = Unique
		}
		last[o.client] = o.numbers.Last()
		operations = append(operations, porcupine.Operation{ClientId: o.client, Call: o.began, Return: o.ended, Output: o.numbers})
	}
	if porcupine.CheckOperations(increasing, operations) {
		return RealTime
	}
	return held
}

// mutate changes a call or two of a history. Not every change breaks an order. No call begins before or ends after it did, so that
// those of a client do not overlap.
func mutate(r *rand.Rand, list []op) {
	at := r.IntN(len(list))
	a, b := &list[at], &list[min(at+1+r.IntN(3), len(list)-1)]
	switch r.IntN(12) {
	case 0: // a number is handed out again
		b.numbers.First.Index = a.numbers.First.Index + r.Uint64N(a.numbers.Count)
	case 1: // one too many, or one that was left out
		a.numbers.Count++
	case 2: // an answer of long ago, if that number was left out
		a.numbers = numbers(1+r.Uint64N(a.numbers.First.Index), 1)
	case 3: // the answer is there sooner
		a.ended -= r.Int64N(a.ended - a.began + 1)
	case 4: // it was asked for later
		a.began += r.Int64N(a.ended - a.began + 1)
	default: // the numbers of two calls, which may overlap, change places
		a.numbers, b.numbers = b.numbers, a.numbers
	}
}

// TestChecker_AgreesWithPorcupine on the strongest order of histories of 200 to 2,000 calls, right ones and such with some
// mistakes. Calls become known in any order.
func TestChecker_AgreesWithPorcupine(t *testing.T) {
	t.Parallel()
	seen := map[Order]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		clients := 2 + r.IntN(10)
		list := history(r, clients, 200+r.IntN(1801), 0)
		for range r.IntN(6) {
			mutate(r, list)
		}
		want := strongest(list)
		c := judged(r, list, clients, RealTime)
		got := (&Result{Verdicts: c.report(RealTime)}).Held()
		if got != want {
			t.Fatalf("seed %d: the checker says %q, Porcupine and all comparisons say %q", seed, got, want)
		}
		seen[want]++
	}
	for _, order := range append([]Order{""}, Orders...) {
		if seen[order] < 20 {
			t.Errorf("only %d histories of which %q is the strongest order", seen[order], order)
		}
	}
	t.Log(seen)
}
