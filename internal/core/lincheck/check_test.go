package lincheck_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// at returns an answered operation that got count timestamps from index on.
func at(client uint64, invocation, completion int64, index, count uint64) lincheck.Operation {
	return lincheck.Operation{
		Client: client, Invocation: invocation, Completion: completion, Answered: true,
		Range: isotone.Range{First: isotone.Timestamp{Time: 7, Index: index}, Count: count},
	}
}

func lost(op lincheck.Operation) lincheck.Operation {
	op.Answered = false
	return op
}

func TestCheck(t *testing.T) {
	inEpoch := func(time uint64, op lincheck.Operation) lincheck.Operation {
		op.Range.First.Time = time
		return op
	}
	tests := []struct {
		name    string
		history []lincheck.Operation
		want    lincheck.Kind // 0: linearizable
		clients [2]uint64     // of Earlier and Later
	}{
		{"nothing", nil, 0, [2]uint64{}},
		{"one", []lincheck.Operation{at(1, 0, 1, 0, 1)}, 0, [2]uint64{}},
		{"in order", []lincheck.Operation{at(1, 0, 1, 0, 2), at(2, 2, 3, 2, 2)}, 0, [2]uint64{}},
		{"gaps", []lincheck.Operation{at(1, 0, 1, 0, 1), at(2, 2, 3, 900, 1)}, 0, [2]uint64{}},
		{"concurrent, swapped", []lincheck.Operation{at(1, 0, 3, 5, 1), at(2, 1, 2, 4, 1)}, 0, [2]uint64{}},
		{"a tie is concurrent", []lincheck.Operation{at(1, 0, 2, 5, 1), at(2, 2, 4, 4, 1)}, 0, [2]uint64{}},
		{"an instant", []lincheck.Operation{at(1, 2, 2, 5, 1), at(2, 2, 2, 4, 1)}, 0, [2]uint64{}},
		{"new epoch, smaller index", []lincheck.Operation{at(1, 0, 1, 9, 1), inEpoch(8, at(2, 2, 3, 0, 1))}, 0, [2]uint64{}},
		{"same index in two epochs", []lincheck.Operation{at(1, 0, 3, 9, 5), inEpoch(8, at(2, 1, 2, 9, 5))}, 0, [2]uint64{}},
		{"largest range", []lincheck.Operation{at(1, 0, 1, 4, isotone.RangeCountMax)}, 0, [2]uint64{}},
		{"largest index", []lincheck.Operation{at(1, 0, 1, math.MaxUint64, 1)}, 0, [2]uint64{}},

		{"same answer", []lincheck.Operation{at(1, 0, 3, 4, 1), at(2, 1, 2, 4, 1)}, lincheck.Duplicate, [2]uint64{2, 1}},
		{"ranges overlap by one", []lincheck.Operation{at(1, 0, 3, 4, 3), at(2, 1, 4, 6, 3)}, lincheck.Duplicate, [2]uint64{1, 2}},
		{"a range in a range", []lincheck.Operation{at(1, 0, 3, 6, 1), at(2, 1, 4, 4, 9)}, lincheck.Duplicate, [2]uint64{1, 2}},
		{"overlap across a third", []lincheck.Operation{at(1, 0, 9, 0, 9), at(2, 0, 9, 2, 1), at(3, 0, 9, 5, 1)}, lincheck.Duplicate, [2]uint64{1, 2}},

		{"swapped", []lincheck.Operation{at(1, 0, 1, 5, 1), at(2, 2, 3, 4, 1)}, lincheck.Inversion, [2]uint64{1, 2}},
		{"swapped, listed backwards", []lincheck.Operation{at(2, 2, 3, 4, 1), at(1, 0, 1, 5, 1)}, lincheck.Inversion, [2]uint64{1, 2}},
		{"swapped epochs", []lincheck.Operation{inEpoch(8, at(1, 0, 1, 0, 1)), at(2, 2, 3, 4, 1)}, lincheck.Inversion, [2]uint64{1, 2}},
		{"swapped, far apart", []lincheck.Operation{
			at(1, 0, 1, 50, 1), at(2, 0, 9, 40, 1), at(3, 0, 9, 60, 1), at(4, 2, 9, 30, 1),
		}, lincheck.Inversion, [2]uint64{1, 4}},

		{"a lost answer repeats nothing", []lincheck.Operation{at(1, 0, 1, 4, 1), lost(at(2, 2, 3, 4, 1))}, 0, [2]uint64{}},
		{"a lost answer needs no completion", []lincheck.Operation{lost(at(1, 5, 0, 0, 0)), at(2, 6, 7, 4, 1)}, 0, [2]uint64{}},

		{"empty range", []lincheck.Operation{at(1, 0, 1, 4, 0)}, lincheck.Malformed, [2]uint64{0, 1}},
		{"range too large", []lincheck.Operation{at(1, 0, 1, 4, isotone.RangeCountMax+1)}, lincheck.Malformed, [2]uint64{0, 1}},
		{"index overflow", []lincheck.Operation{at(1, 0, 1, math.MaxUint64, 2)}, lincheck.Malformed, [2]uint64{0, 1}},
		{"backwards", []lincheck.Operation{at(1, 1, 0, 4, 1)}, lincheck.Malformed, [2]uint64{0, 1}},
		{"zero timestamp", []lincheck.Operation{inEpoch(0, at(1, 0, 1, 0, 1))}, lincheck.Malformed, [2]uint64{0, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := lincheck.Check(test.history)
			if test.want == 0 {
				if err != nil {
					t.Fatalf("want no violation, got %v", err)
				}
				return
			}
			var v *lincheck.Violation
			if !errors.As(err, &v) || v.Kind != test.want {
				t.Fatalf("want a %v, got %v", test.want, err)
			}
			if got := [2]uint64{v.Earlier.Client, v.Later.Client}; got != test.clients {
				t.Errorf("want clients %v, got %v: %v", test.clients, got, err)
			}
			if !strings.Contains(v.Error(), "client 1") && !strings.Contains(v.Error(), "client 2") {
				t.Errorf("the message names no client: %v", v)
			}
		})
	}
}

func TestViolation_MessageNamesBothOperations(t *testing.T) {
	tests := []struct {
		history []lincheck.Operation
		want    string
	}{
		{
			[]lincheck.Operation{at(1, 0, 1, 16, 4), at(2, 2, 3, 10, 1)},
			"real-time order inverted: client 1 got 00000000000000070000000000000010 and on, 4 in all in [0, 1]; " +
				"invoked after that, client 2 got 0000000000000007000000000000000a in [2, 3]",
		},
		{
			[]lincheck.Operation{at(1, 0, 1, 16, 1), at(2, 2, 3, 16, 1)},
			"duplicate timestamps: client 1 got 00000000000000070000000000000010 in [0, 1]; " +
				"then client 2 got 00000000000000070000000000000010 in [2, 3]",
		},
		{
			[]lincheck.Operation{at(3, 2, 1, 16, 1)},
			"malformed operation: client 3 got 00000000000000070000000000000010 in [2, 1]: completed before it was invoked",
		},
	}
	for _, test := range tests {
		if got := lincheck.Check(test.history).Error(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestKind_String(t *testing.T) {
	for kind, want := range map[lincheck.Kind]string{
		lincheck.Malformed: "malformed", lincheck.Duplicate: "duplicate",
		lincheck.Inversion: "inversion", 0: "Kind(0)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCheck_LeavesTheHistoryAlone: callers print the history after the verdict.
func TestCheck_LeavesTheHistoryAlone(t *testing.T) {
	history := arbitraryHistory(rand.New(rand.NewPCG(1, 1)), 50)
	before := slices.Clone(history)
	_ = lincheck.Check(history)
	if !slices.Equal(before, history) {
		t.Error("Check changed its argument")
	}
}

// quadratic is the definition in check.go, word for word, for each pair.
func quadratic(history []lincheck.Operation) lincheck.Kind {
	var duplicate, inversion bool
	for i, a := range history {
		if !a.Answered {
			continue
		}
		r := a.Range
		overflow := r.Count > 0 && r.First.Index+(r.Count-1) < r.First.Index
		if r.Count < 1 || r.Count > 1<<32 || overflow || r.First.Time|r.First.Index == 0 || a.Completion < a.Invocation {
			return lincheck.Malformed
		}
		for j, b := range history {
			if i == j || !b.Answered || b.Range.Count == 0 {
				continue
			}
			apart := r.Last().Before(b.Range.First) || b.Range.Last().Before(r.First)
			duplicate = duplicate || !apart
			inversion = inversion || a.Completion < b.Invocation && b.Range.First.Compare(r.Last()) <= 0
		}
	}
	switch {
	case duplicate:
		return lincheck.Duplicate
	case inversion:
		return lincheck.Inversion
	default:
		return 0
	}
}

// witnessed reports whether the two operations of a violation prove it alone.
func witnessed(v *lincheck.Violation) bool {
	if v.Kind == lincheck.Malformed {
		return quadratic([]lincheck.Operation{v.Later}) == lincheck.Malformed
	}
	return quadratic([]lincheck.Operation{v.Earlier, v.Later}) == v.Kind
}

// FuzzCheck compares with the quadratic oracle. A history is a run of 8-byte
// records; small numbers are likely, so that operations meet.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{0, 1, 1, 4, 1, 0, 1, 0, 2, 1, 1, 4, 1, 0, 1, 0})
	f.Add([]byte{0, 1, 1, 4, 1, 0, 1, 0, 2, 1, 1, 3, 1, 0, 1, 0})
	f.Add([]byte{0, 1, 0, 0, 1, 0, 1, 0})
	f.Add([]byte{0, 1, 1, 255, 2, 255, 1, 0})
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 80)
		for i := range 10 {
			binary.LittleEndian.PutUint64(data[8*i:], random.Uint64()&0x00010003_07010707)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		history := decodeHistory(data[:min(len(data), 8*64)])
		want := quadratic(history)
		var v *lincheck.Violation
		switch err := lincheck.Check(history); {
		case err == nil && want == 0:
		case errors.As(err, &v) && v.Kind == want && witnessed(v):
		default:
			t.Fatalf("want %v, got %v, of\n%s", want, err, list(history))
		}
	})
}

// decodeHistory makes operations of 8 bytes: invocation, duration (signed), time,
// index, count, high byte of the index, answered (lowest bit) and client.
func decodeHistory(data []byte) []lincheck.Operation {
	var history []lincheck.Operation
	for record := range slices.Chunk(data, 8) {
		if len(record) < 8 {
			break
		}
		index := uint64(record[3])
		if record[5] == 255 {
			index = math.MaxUint64 - index%4
		}
		count := uint64(record[4])
		if count == 255 {
			count = isotone.RangeCountMax + uint64(record[5]%2)
		}
		history = append(history, lincheck.Operation{
			Client:     uint64(record[7]),
			Invocation: int64(record[0]),
			Completion: int64(record[0]) + int64(int8(record[1])),
			Range:      isotone.Range{First: isotone.Timestamp{Time: uint64(record[2]), Index: index}, Count: count},
			Answered:   record[6]%2 == 1,
		})
	}
	return history
}
