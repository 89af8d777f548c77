package clockbench

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
)

const (
	ms    = int64(1e6)
	epoch = 1_800_000_000_000_000_000 // a time on the cluster clock
	mine  = 1<<63 | 7                 // the index of a generator
)

// honest returns what three processes record of a cluster clock with a rate, in millionths of its
// error, that starts at epoch when the steady clock shows origin.
func honest(seed uint64, millionths int64, origin int64) *Evidence {
	random := rand.New(rand.NewPCG(seed, 1))
	shows := func(at int64) uint64 { return epoch + uint64(at-origin+(at-origin)*millionths/1_000_000) }
	e := new(Evidence)
	for process := range 3 {
		g := Generator{Process: process, Index: mine + uint64(process)}
		for at := origin + 1000*ms; at < origin+61_000*ms; at += random.Int64N(100 * ms) {
			below, above := random.Int64N(ms), random.Int64N(ms)
			e.Reads = append(e.Reads, Read{
				Process: process, Lo: at - random.Int64N(ms), Hi: at + random.Int64N(ms), Term: 3,
				Earliest: shows(at) - uint64(below), Latest: shows(at) + uint64(above),
			})
			ts := isotone.Timestamp{Time: shows(at), Index: random.Uint64N(1 << 62)}
			o := Operation{Process: process, Oracle: true, Invocation: at - 1 - random.Int64N(1000), Completion: at + 1 + random.Int64N(ms), Timestamp: ts}
			if random.IntN(2) == 0 {
				o.Oracle, o.Timestamp = false, isotone.Timestamp{Time: max(g.Last+1, shows(at)+uint64(above)), Index: g.Index}
				o.Completion = at + 4*above + 4000
				g.note([]isotone.Timestamp{o.Timestamp})
			}
			e.Operations = append(e.Operations, o)
		}
		e.Generators = append(e.Generators, g)
	}
	return e
}

func TestCheck_AcceptsClocksWithinTheRates(t *testing.T) {
	for seed := range uint64(10) {
		for _, millionths := range []int64{-1000, -200, 0, 999, 1000} {
			for _, origin := range []int64{-5 * ms, 0, 1 << 55} {
				if list, n := honest(seed, millionths, origin).Check(); n > 0 {
					t.Fatalf("seed %d, %d millionths, origin %d: %d violations, the first: %s", seed, millionths, origin, n, list[0].Message)
				}
			}
		}
	}
	if _, n := new(Evidence).Check(); n > 0 {
		t.Errorf("%d violations in nothing", n)
	}
}

// TestCheck_ContradictionsAreThoseOfAllPairs compares the sweep with the definition.
func TestCheck_ContradictionsAreThoseOfAllPairs(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	found := 0
	for range 3000 {
		reads := make([]Read, 1+random.IntN(6))
		for i := range reads {
			lo, earliest := random.Int64N(4000), epoch+random.Uint64N(4000)
			reads[i] = Read{Term: 1 + random.Uint64N(2), Lo: lo, Hi: lo + random.Int64N(500), Earliest: earliest, Latest: earliest + random.Uint64N(1500)}
		}
		want := map[Read]bool{}
		for _, i := range reads {
			for _, j := range reads {
				d := j.Lo - i.Hi
				moved := 999 * d
				if d < 0 {
					moved = 1001 * d
				}
				if i.Term == j.Term && 1000*int64(i.Earliest-epoch)+moved > 1000*int64(j.Latest-epoch) {
					want[j] = true
				}
			}
		}
		var v verdicts
		e := Evidence{Reads: slices.Clone(reads)}
		e.checkContradictions(&v)
		got := map[Read]bool{}
		for _, violation := range v.list {
			got[violation.Later.(Read)] = true
		}
		found += len(want)
		if len(got) != len(want) {
			t.Fatalf("%v\nfound %v, want %v", reads, got, want)
		}
	}
	if found == 0 {
		t.Error("no case has a contradiction")
	}
}

// TestCheck_FindsPlantedViolations plants one of each kind among records that are right.
func TestCheck_FindsPlantedViolations(t *testing.T) {
	const at = 30_000 * ms // of the records of honest with origin 0
	read := func(at int64, earliest, latest int64, term uint64) Read {
		return Read{Process: 9, Lo: at - 10, Hi: at + 10, Earliest: uint64(epoch + at + earliest), Latest: uint64(epoch + at + latest), Term: term}
	}
	clock := func(begin, end, time int64, index uint64) Operation {
		return Operation{Process: 9, Invocation: begin, Completion: end, Timestamp: isotone.Timestamp{Time: uint64(epoch + time), Index: index}}
	}
	for name, tt := range map[string]struct {
		plant func(*Evidence)
		kind  string
		says  string
	}{
		"an interval above all others": {func(e *Evidence) { e.Reads = append(e.Reads, read(at, 300*ms, 301*ms, 3)) }, Contradiction, "process 9"},
		"an interval below all others": {func(e *Evidence) { e.Reads = append(e.Reads, read(at, -301*ms, -300*ms, 3)) }, Contradiction, "process 9"},
		"a clock that is too fast": {func(e *Evidence) {
			e.Reads = []Read{read(0, 0, 1000, 3), read(10_000*ms, 10*ms+2000, 10*ms+3000, 3)}
			e.Operations = nil
		}, Contradiction, "within both"},
		"a clock that is too slow": {func(e *Evidence) {
			e.Reads = []Read{read(0, 0, 1000, 3), read(10_000*ms, -10*ms-3000, -10*ms-2000, 3)}
			e.Operations = nil
		}, Contradiction, "within both"},
		"a far number": {func(e *Evidence) {
			e.Reads = append(e.Reads, Read{Lo: at, Hi: at + 1, Earliest: 1 << 63, Latest: 1<<63 + 1, Term: 3})
		}, Contradiction, "term 3"},
		"a read of an old term after one of a new term": {func(e *Evidence) {
			e.Operations = nil
			e.Reads = append(e.Reads, read(at, 2000*ms, 2001*ms, 4))
		}, ReadOrder, "in term 4"},
		"a read below a timestamp that was complete": {func(e *Evidence) {
			e.Operations = append(e.Operations, clock(at, at+1, at+500*ms, mine+8))
		}, ReadOrder, "after it a read"},
		"a timestamp of the oracle below a read": {func(e *Evidence) {
			o := clock(at, at+ms, at-500*ms, 5)
			o.Oracle = true
			e.Operations = append(e.Operations, o)
		}, ReadOrder, "after it an operation of the oracle"},
		"a wait that was too short": {func(e *Evidence) {
			e.Reads = nil
			e.Operations = []Operation{clock(10, 20, 1000, mine), clock(30, 2000, 900, mine+1)}
		}, Inversion, "after its end began"},
		"an oracle that does not wait": {func(e *Evidence) {
			e.Reads = nil
			e.Operations = []Operation{clock(10, 20, 1000, mine), {Oracle: true, Invocation: 21, Completion: 22, Timestamp: isotone.Timestamp{Time: epoch + 1000, Index: 3}}}
		}, Inversion, "the oracle"},
		"no wait, and smaller than the oracle's": {func(e *Evidence) {
			e.Reads = nil
			e.Operations = []Operation{{Oracle: true, Invocation: 10, Completion: 20, Timestamp: isotone.Timestamp{Time: epoch + 1000, Index: 3}}, clock(21, Never, 999, mine)}
		}, Inversion, "to never"},
		"a timestamp made twice": {func(e *Evidence) {
			e.Reads = nil
			e.Operations = []Operation{clock(10, 30, 1000, mine), clock(20, 40, 1000, mine)}
		}, Duplicate, "the same timestamp"},
		"two generators with the same bits": {func(e *Evidence) {
			e.Generators = append(e.Generators, Generator{Process: 9, Index: mine + 1, Count: 1})
		}, Duplicate, "random bits"},
		"a generator with a fault": {func(e *Evidence) { e.Generators[0].Fault = "it went back" }, Malformed, "it went back"},
		"a read that is impossible": {func(e *Evidence) {
			e.Reads = append(e.Reads, Read{Lo: at, Hi: at + 1, Earliest: uint64(epoch + at), Latest: uint64(epoch+at) - 1, Term: 3})
		}, Malformed, "impossible"},
		"an index of the oracle's": {func(e *Evidence) {
			e.Operations = append(e.Operations, clock(1, Never, 61_000*ms, 77))
		}, Malformed, "other kind"},
		"an operation that ended before it began": {func(e *Evidence) { e.Operations = append(e.Operations, clock(at, at-1, at, mine+9)) }, Malformed, "before it was invoked"},
	} {
		e := honest(1, 200, 0)
		tt.plant(e)
		list, n := e.Check()
		if !slices.ContainsFunc(list, func(v bench.Violation) bool { return v.Kind == tt.kind && strings.Contains(v.Message, tt.says) }) || n < uint64(len(list)) {
			t.Errorf("%s: not found among %d: %.3v", name, n, list)
		}
	}
}

func TestGenerator_FaultsAreFound(t *testing.T) {
	stamps := func(index uint64, times ...uint64) (list []isotone.Timestamp) {
		for _, time := range times {
			list = append(list, isotone.Timestamp{Time: time, Index: index})
		}
		return list
	}
	for name, tt := range map[string]struct {
		batches [][]isotone.Timestamp
		says    string
	}{
		"right":           {[][]isotone.Timestamp{stamps(mine, 5), stamps(mine, 6, 7, 8), stamps(mine, 20)}, ""},
		"repeated":        {[][]isotone.Timestamp{stamps(mine, 5), stamps(mine, 5)}, "was made after"},
		"back":            {[][]isotone.Timestamp{stamps(mine, 5, 6, 7), stamps(mine, 6)}, "was made after"},
		"another index":   {[][]isotone.Timestamp{stamps(mine, 5), stamps(mine+1, 6)}, "one index"},
		"the oracle's":    {[][]isotone.Timestamp{stamps(7, 5)}, "one of the oracle's"},
		"not consecutive": {[][]isotone.Timestamp{stamps(mine, 5, 6, 8)}, "consecutive"},
		"a wrong middle":  {[][]isotone.Timestamp{stamps(mine, 5, 5, 7)}, "timestamp 1 of a batch"},
	} {
		var g Generator
		for _, batch := range tt.batches {
			g.note(batch)
			g.look(batch)
		}
		if (tt.says == "") != (g.Fault == "") || !strings.Contains(g.Fault, tt.says) {
			t.Errorf("%s: %q, want %q", name, g.Fault, tt.says)
		}
	}
}
