package check_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isotone/isotone/txn/check"
)

// snapshots makes a history as a perfect system with snapshot isolation has it: random transactions
// over two lists and two registers, any number of them open at once.
func snapshots(rng *rand.Rand, n int) (history []check.Txn) {
	type open struct {
		txn      check.Txn
		start    int
		snapshot map[string][]int64
		wrote    map[string][]int64
	}
	committed := map[string][]int64{} // by key: the values, the last of which a register has
	written := map[string]int{}       // by key: when it was written last
	var opened []*open
	now, value := 0, int64(0)
	for len(history) < n {
		now++
		if len(opened) < 4 && rng.IntN(3) == 0 {
			o := &open{start: now, snapshot: map[string][]int64{}, wrote: map[string][]int64{}}
			for k, v := range committed {
				o.snapshot[k] = slices.Clone(v)
			}
			o.txn.Begin = int64(now)
			opened = append(opened, o)
		}
		if len(opened) == 0 {
			continue
		}
		i := rng.IntN(len(opened))
		o := opened[i]
		key := []string{"l", "m", "r", "s"}[rng.IntN(4)]
		isList := key < "n"
		seen := append(slices.Clone(o.snapshot[key]), o.wrote[key]...)
		switch rng.IntN(5) {
		case 0, 1:
			op := check.Op{Kind: check.List, Key: key, List: seen}
			if !isList {
				op = check.Op{Kind: check.Read, Key: key, Value: last(seen)}
			}
			o.txn.Ops = append(o.txn.Ops, op)
		case 2, 3:
			value++
			op := check.Op{Kind: check.Append, Key: key, Value: value}
			if !isList {
				op.Kind = check.Write
			}
			o.txn.Ops = append(o.txn.Ops, op)
			o.wrote[key] = append(o.wrote[key], value)
		default:
			opened = slices.Delete(opened, i, i+1)
			o.txn.Name = fmt.Sprint("T", len(history))
			o.txn.Status = check.Committed
			for k := range o.wrote {
				if written[k] >= o.start {
					o.txn.Status = check.Aborted
				}
			}
			if o.txn.Status == check.Committed {
				for k, values := range o.wrote {
					committed[k] = append(committed[k], values...)
					written[k] = now
				}
				o.txn.Commit, o.txn.End = uint64(now), int64(now)
			}
			if rng.IntN(6) == 0 {
				o.txn.Status = check.Unknown
			}
			history = append(history, o.txn)
		}
	}
	return history
}

func last(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

func TestCheck_AcceptsSnapshotIsolation(t *testing.T) {
	for seed := range uint64(300) {
		history := snapshots(rand.New(rand.NewPCG(seed, 1)), 60)
		if seed%2 == 0 {
			for i := range history {
				history[i].Commit = 0
			}
		}
		if err := check.Check(history); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestCheck_NoticesAChangedRead(t *testing.T) {
	noticed := 0
	const seeds = 300
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		history := snapshots(rng, 60)
		for range 1000 {
			txn := &history[rng.IntN(len(history))]
			if txn.Status != check.Committed || len(txn.Ops) == 0 {
				continue
			}
			op := &txn.Ops[0]
			if op.Kind == check.List && len(op.List) > 2 {
				op.List = op.List[:len(op.List)-1]
				break
			}
		}
		if check.Check(history) != nil {
			noticed++
		}
	}
	// Some are an older snapshot that is as consistent, but then real time shows it, unless the
	// transactions were concurrent.
	if noticed < seeds*9/10 {
		t.Errorf("noticed %d of %d", noticed, seeds)
	}
}

// random makes a small history of lists that may be anything. A last transaction reads all.
func random(rng *rand.Rand) []check.Txn {
	const txns = 4
	orders := map[string][]int64{}
	history := make([]check.Txn, txns)
	for i := range history {
		history[i] = check.Txn{Name: fmt.Sprint("T", i), Status: check.Committed}
		for n := range 1 + rng.IntN(3) {
			op := check.Op{Kind: check.List, Key: string("lm"[rng.IntN(2)])}
			if rng.IntN(2) == 0 {
				op.Kind, op.Value = check.Append, int64(10*i+n+1)
				orders[op.Key] = append(orders[op.Key], op.Value)
			}
			history[i].Ops = append(history[i].Ops, op)
		}
	}
	for _, key := range []string{"l", "m"} {
		if rng.IntN(2) == 0 {
			rng.Shuffle(len(orders[key]), func(i, j int) {
				o := orders[key]
				o[i], o[j] = o[j], o[i]
			})
		}
	}
	for i := range history {
		own := map[string][]int64{}
		prefix := map[string][]int64{}
		for n := range history[i].Ops {
			op := &history[i].Ops[n]
			if op.Kind == check.Append {
				own[op.Key] = append(own[op.Key], op.Value)
				continue
			}
			if _, ok := prefix[op.Key]; !ok {
				prefix[op.Key] = orders[op.Key][:rng.IntN(len(orders[op.Key])+1)]
			}
			op.List = append(slices.Clone(prefix[op.Key]), own[op.Key]...)
		}
	}
	return append(history, check.Txn{Name: "all", Status: check.Committed, Ops: []check.Op{
		{Kind: check.List, Key: "l", List: orders["l"]}, {Kind: check.List, Key: "m", List: orders["m"]},
	}})
}

// explained reports whether some order of starts and commits has snapshot isolation give the history.
// The last transaction comes after all others.
func explained(history []check.Txn) bool {
	n := len(history) - 1
	var order []int // i: the start of i; n+i: its commit
	used := make([]bool, 2*n)
	var search func() bool
	search = func() bool {
		if len(order) == 2*n {
			return gives(append(order, n*2, n*2+1), history)
		}
		for e := range 2 * n {
			if used[e] || e >= n && !used[e-n] {
				continue
			}
			used[e] = true
			order = append(order, e)
			if search() {
				return true
			}
			order = order[:len(order)-1]
			used[e] = false
		}
		return false
	}
	return search()
}

func gives(order []int, history []check.Txn) bool {
	n := len(history) - 1
	state := map[string][]int64{}
	wrote := map[string]int{}
	started := make([]int, n+1)
	for at, e := range order {
		switch {
		case e == 2*n || e < n:
			i := min(e, n)
			started[i] = at + 1
			own := map[string][]int64{}
			for _, op := range history[i].Ops {
				if op.Kind == check.Append {
					own[op.Key] = append(own[op.Key], op.Value)
				} else if !slices.Equal(op.List, append(slices.Clone(state[op.Key]), own[op.Key]...)) {
					return false
				}
			}
		case e < 2*n:
			for _, op := range history[e-n].Ops {
				if op.Kind != check.Append {
					continue
				}
				if wrote[op.Key] > started[e-n] && wrote[op.Key] != at+1 {
					return false
				}
				wrote[op.Key] = at + 1
				state[op.Key] = append(state[op.Key][:len(state[op.Key]):len(state[op.Key])], op.Value)
			}
		}
	}
	return true
}

// TestCheck_AgreesWithTheDefinition compares with a search through all orders: for lists that somebody
// has read in full, Check is exact.
func TestCheck_AgreesWithTheDefinition(t *testing.T) {
	var clean, faulty int
	names := map[check.Name]int{}
	for seed := range uint64(1500) {
		history := random(rand.New(rand.NewPCG(seed, 3)))
		err, ok := check.Check(history), explained(history)
		if (err == nil) != ok {
			t.Errorf("seed %d: %v, but an order exists: %v", seed, err, ok)
			for i := range history {
				t.Log(history[i].String())
			}
			return
		}
		if ok {
			clean++
			continue
		}
		faulty++
		var a *check.Anomaly
		if errors.As(err, &a) {
			names[a.Name]++
		}
	}
	if clean < 100 || faulty < 100 {
		t.Errorf("%d clean and %d faulty histories are too few", clean, faulty)
	}
	t.Log(clean, "clean,", faulty, "faulty:", names)
}
