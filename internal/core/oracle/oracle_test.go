package oracle_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

func TestAllocator_KeepsOrderWhateverTheClockDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a oracle.Allocator
		ceiling := uint64(1_000_100)
		a.Open(1_000_000, ceiling)
		var last isotone.Timestamp
		steps := rapid.IntRange(1, 200).Draw(t, "steps")
		for range steps {
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				a.Advance(rapid.Uint64Range(0, 3_000_000).Draw(t, "now"))
			case 1:
				ceiling = max(ceiling, rapid.Uint64Range(0, 2_000_000).Draw(t, "ceiling"))
				a.Extend(ceiling)
			case 2:
				before := a.Time()
				r, err := a.Next(rapid.Uint64Range(1, 1000).Draw(t, "count"))
				if err != nil {
					t.Fatal(err)
				}
				if !last.Before(r.First) {
					t.Fatalf("I3: %v after %v", r.First, last)
				}
				if r.First.Time >= ceiling {
					t.Fatalf("I1: %v at ceiling %d", r.First, ceiling)
				}
				if r.First.Time != last.Time && r.First.Index != 0 {
					t.Fatalf("I3: index %d at the start of an epoch", r.First.Index)
				}
				if r.First.Time != before {
					t.Fatalf("time moved from %d to %d without Advance", before, r.First.Time)
				}
				last = r.Last()
			}
		}
	})
}

func TestAllocator_HoldsTimeAndGrowsIndexAtTheCeiling(t *testing.T) {
	var a oracle.Allocator
	a.Open(10, 20)
	a.Advance(1000)
	for i := range uint64(5) {
		r, err := a.Next(1)
		if err != nil || r.First != (isotone.Timestamp{Time: 19, Index: i}) {
			t.Fatalf("issue %d: %v, %v", i, r.First, err)
		}
		a.Advance(1000)
	}
}

func TestAllocator_TakesTheNextNanosecondWhenTheIndexIsFull(t *testing.T) {
	var a oracle.Allocator
	a.Open(10, 12)
	fill(t, &a)
	r, err := a.Next(2)
	if err != nil || r.First != (isotone.Timestamp{Time: 11}) {
		t.Fatalf("got %v, %v; want time 11, index 0", r.First, err)
	}
	fill(t, &a)
	if _, err := a.Next(isotone.RangeCountMax); !errors.Is(err, isotone.ErrOverloaded) {
		t.Fatalf("full epoch at the ceiling: %v, want overloaded", err)
	}
}

// fill leaves one index of the epoch unused.
func fill(t *testing.T, a *oracle.Allocator) {
	t.Helper()
	oracle.SetIndex(a, math.MaxUint64-1)
}

// TestAllocator_BothFormsHaveOneOrder: whatever is issued later is larger, in either form, and below the
// ceiling.
func TestAllocator_BothFormsHaveOneOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a oracle.Allocator
		ceiling := uint64(1_000_100)
		a.Open(1_000_000, ceiling)
		var last isotone.Timestamp
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				a.Advance(rapid.Uint64Range(1_000_000, 1_100_000).Draw(t, "now"))
			case 1:
				ceiling = max(ceiling, rapid.Uint64Range(0, 1_200_000).Draw(t, "ceiling"))
				a.Extend(ceiling)
			case 2:
				r, err := a.Next(rapid.Uint64Range(1, 10).Draw(t, "count"))
				if err != nil || !last.Before(r.First) || r.First.Time >= ceiling {
					t.Fatalf("%v, %v after %v, ceiling %d", r, err, last, ceiling)
				}
				last = r.Last()
			case 3:
				from, to := rapid.Uint64Range(0, 1_100_000).Draw(t, "from"), rapid.Uint64Range(1_000_000, 1_200_000).Draw(t, "to")
				count, before := rapid.Uint64Range(1, 300).Draw(t, "count"), a
				r, ok := a.Next64(count, from, to)
				if !ok {
					if a != before {
						t.Fatal("what was refused changed something")
					}
					break
				}
				first := isotone.Timestamp64From(r.First)
				end := (first + isotone.Timestamp64(count-1)).Timestamp()
				if first.Timestamp() != r.First || r.Count != count || !last.Before(r.First) || r.First.Time < from || end.Time > to || end.Time >= ceiling {
					t.Fatalf("%d timestamps from %v to %v after %v: from %d to %d, ceiling %d", r.Count, r.First, end, last, from, to, ceiling)
				}
				last = end
			}
		}
	})
}

// TestAllocator_64BitTimestampsAreAsEarlyAsPossible: 262,144 of them fit in a millisecond.
func TestAllocator_64BitTimestampsAreAsEarlyAsPossible(t *testing.T) {
	var a oracle.Allocator
	a.Open(5_000_000, 7_000_000)
	first := isotone.NewTimestamp64(5, 0)
	for i := range isotone.Timestamp64(2) {
		r, ok := a.Next64(1<<18, 0, math.MaxUint64)
		if !ok || r.First != (first+i<<18).Timestamp() {
			t.Fatalf("%v, %v, want %v", r, ok, (first + i<<18).Timestamp())
		}
	}
	if r, ok := a.Next64(1, 0, math.MaxUint64); ok {
		t.Errorf("%v at the ceiling", r)
	}
	a.Extend(7_000_005)
	if r, ok := a.Next64(1, 0, math.MaxUint64); !ok || r.First.Time != 7_000_000 {
		t.Errorf("%v, %v", r, ok)
	}
}

func TestAllocator_PanicsOnBrokenInvariants(t *testing.T) {
	for name, f := range map[string]func(){
		"I2 closed": func() { var a oracle.Allocator; _, _ = a.Next(1) },
		"I2 reopen": func() { var a oracle.Allocator; a.Open(1, 2); a.Open(2, 3) },
		"I1 floor":  func() { var a oracle.Allocator; a.Open(2, 2) },
		"zero":      func() { var a oracle.Allocator; a.Open(1, 2); _, _ = a.Next(0) },
		"closed 64": func() { var a oracle.Allocator; a.Next64(1, 0, 9) },
		"zero 64":   func() { var a oracle.Allocator; a.Open(1, 2); a.Next64(0, 0, 9) },
		"too many":  func() { var a oracle.Allocator; a.Open(1, 2); _, _ = a.Next(isotone.RangeCountMax + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestState_CeilingNeverSinksAndEachReservationAddsSomething(t *testing.T) {
	var s oracle.State
	for _, c := range []struct{ target, want uint64 }{
		{100, 100}, {50, 101}, {101, 102}, {200, 200}, {math.MaxUint64, oracle.CeilingMax}, {7, oracle.CeilingMax},
	} {
		s.Apply(0, oracle.Command{Kind: oracle.KindReserve, Target: c.target})
		if s.Ceiling != c.want {
			t.Fatalf("reserve %d: ceiling %d, want %d", c.target, s.Ceiling, c.want)
		}
	}
}

func TestState_TheFirstIncarnationWins(t *testing.T) {
	var s oracle.State
	s.AddMember(oracle.Member{ID: 2, PeerAddr: "p2"})
	s.AddMember(oracle.Member{ID: 1, PeerAddr: "p1"})
	reg := func(inc, boot uint64, addr string) {
		s.Apply(0, oracle.Command{Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, Incarnation: inc, Boot: boot, ClientAddr: addr}})
	}
	reg(7, 2, "a")
	reg(8, 3, "b") // another directory
	reg(7, 1, "c") // an older start
	reg(7, 3, "d")
	m, _ := s.Member(1)
	want := oracle.Member{ID: 1, PeerAddr: "p1", Incarnation: 7, Boot: 3, ClientAddr: "d", Advertised: "d"}
	if m != want {
		t.Errorf("member %+v, want %+v", m, want)
	}
	s.RemoveMember(1)
	reg(7, 4, "e")
	if _, ok := s.Member(1); ok || len(s.Members) != 1 {
		t.Errorf("a removed member came back: %+v", s.Members)
	}
}

func TestState_DurableOnlyGrows(t *testing.T) {
	var s oracle.State
	s.AddMember(oracle.Member{ID: 1})
	for _, i := range []uint64{5, 3, 9, 8} {
		s.Apply(0, oracle.Command{Kind: oracle.KindReserve, Durable: []oracle.Durable{{ID: 1, Index: i}, {ID: 4, Index: 1}}})
	}
	if m, _ := s.Member(1); m.Durable != 9 {
		t.Errorf("durable %d, want 9", m.Durable)
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range []oracle.Command{
		{Kind: oracle.KindReserve, Target: 9, Durable: []oracle.Durable{{ID: 1, Index: 2}}},
		{Kind: oracle.KindReserve, Target: 9},
		{Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, PeerAddr: "p", ClientAddr: "c", Incarnation: 2, Boot: 3, Session: 4}},
		{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{Space: space, Node: 1, Session: 2, Slots: 3, Fixed: oracle.AnyWorker, From: 4, Until: 5}},
		{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{Space: space, Session: 2, Slots: 1, Fixed: 7, From: 4, Until: 5}},
		{Kind: oracle.KindRelease, Release: oracle.Release{Node: 1, Session: 2, Used: []oracle.Used{{Worker: 3, Start: 4, Next: 5}, {Worker: 6}}}},
		{Kind: oracle.KindRelease, Release: oracle.Release{Session: 2}},
		{Kind: oracle.KindReserve, Target: 9, Digest: oracle.Digest{Index: 7, Sum: 8}},
		{Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, ClientAddr: "c", Incarnation: 2, Boot: 3, Session: 4, Level: 2}},
		{Kind: oracle.KindLevel, Level: 2},
		goldenCommands()["hold"],
	} {
		b := c.Append(nil)
		if got, err := oracle.DecodeCommand(b); err != nil || !reflect.DeepEqual(got, c) {
			f.Fatalf("round trip: %+v, %v; want %+v", got, err, c)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := oracle.DecodeCommand(b)
		if err != nil || c.Kind >= 128 {
			return
		}
		again := c.Append(nil)
		// Sections that are skipped are not written again.
		if c2, err := oracle.DecodeCommand(again); err != nil || !reflect.DeepEqual(c2, c) {
			t.Errorf("%x decodes to %+v, and what that encodes to to %+v, %v", b, c, c2, err)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	s := oracle.State{ClusterID: 1, Ceiling: 2, Members: []oracle.Member{{ID: 1, PeerAddr: "a"}, {ID: 3, ClientAddr: "b", Durable: 7}}}
	b := s.Append(nil)
	if got, err := oracle.DecodeState(b); err != nil || !reflect.DeepEqual(got, s) {
		f.Fatalf("round trip: %+v, %v; want %+v", got, err, s)
	}
	f.Add(b)
	f.Add((&oracle.State{}).Append(nil))
	s.Level, s.Members[1].Level = 1, 2
	b = s.Append(nil)
	if got, err := oracle.DecodeState(b); err != nil || !reflect.DeepEqual(got, s) {
		f.Fatalf("round trip: %+v, %v; want %+v", got, err, s)
	}
	f.Add(b)
	held := goldenStates()["holds"]
	f.Add(held.Append(nil))
	leased := at(5000)
	ask(leased, 1, 10, 2, oracle.AnyWorker, 5000)
	ask(leased, 2, 20, 1, 7, 5000)
	giveBack(leased, leased.Workers[1], 5500)
	b = leased.Append(nil)
	if got, err := oracle.DecodeState(b); err != nil || !reflect.DeepEqual(&got, leased) {
		f.Fatalf("round trip: %+v, %v; want %+v", got, err, leased)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := oracle.DecodeState(b)
		if err != nil {
			return
		}
		again := s.Append(nil)
		if s.Level == 0 && !bytes.Equal(again, b) {
			t.Errorf("%x decodes to %+v, which encodes differently", b, s)
		}
		if s2, err := oracle.DecodeState(again); err != nil || !reflect.DeepEqual(s2, s) || s2.Digest() != s.Digest() {
			t.Errorf("%x decodes to %+v, and what that encodes to to %+v, %v", b, s, s2, err)
		}
	})
}

func TestAllocator_IssuesWithoutAllocating(t *testing.T) {
	var a oracle.Allocator
	a.Open(1, 1<<62)
	if n := testing.AllocsPerRun(1000, func() {
		a.Advance(5)
		if _, err := a.Next(3); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per range, want 0", n)
	}
}

func BenchmarkAllocator_Next(b *testing.B) {
	var a oracle.Allocator
	a.Open(1, 1<<62)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Next(1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocator_AdvanceAndNext(b *testing.B) {
	var a oracle.Allocator
	a.Open(1, 1<<62)
	b.ReportAllocs()
	now := uint64(1)
	for b.Loop() {
		now += 100
		a.Advance(now)
		if _, err := a.Next(1); err != nil {
			b.Fatal(err)
		}
	}
}
