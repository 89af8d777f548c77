package isotone_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
)

// issuable draws 64-bit timestamps whose time a Timestamp can have.
func issuable() *rapid.Generator[isotone.Timestamp64] {
	return rapid.Custom(func(t *rapid.T) isotone.Timestamp64 {
		return isotone.NewTimestamp64(rapid.Uint64Range(0, math.MaxUint64/1_000_000-1).Draw(t, "ms"), rapid.Uint64Range(0, 1<<18-1).Draw(t, "counter"))
	})
}

func TestTimestamp64_HasOneOrderWithTimestamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := issuable().Draw(t, "a"), issuable().Draw(t, "b")
		if rapid.Bool().Draw(t, "near") {
			b = a + isotone.Timestamp64(rapid.Uint64Range(0, 3).Draw(t, "ahead"))
		}
		if a.Before(b) != a.Timestamp().Before(b.Timestamp()) || (a == b) != (a.Timestamp() == b.Timestamp()) {
			t.Fatalf("%v and %v are at %v and %v", a, b, a.Timestamp(), b.Timestamp())
		}
		if back := isotone.Timestamp64From(a.Timestamp()); back != a {
			t.Fatalf("%v came back as %v", a, back)
		}
	})
}

func TestTimestamp64From_IsTheSmallestNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := isotone.Timestamp{Time: rapid.Uint64Range(0, math.MaxUint64-2_000_000).Draw(t, "time"), Index: rapid.Uint64Range(0, 1).Draw(t, "index")}
		u := isotone.Timestamp64From(at)
		if u.Timestamp().Before(at) || u > 0 && !(u-1).Timestamp().Before(at) {
			t.Fatalf("%v: %v is at %v, its predecessor at %v", at, u, u.Timestamp(), (u - 1).Timestamp())
		}
	})
	if u := isotone.Timestamp64From(isotone.Timestamp{}); u != 0 {
		t.Errorf("the zero timestamp is %v", u)
	}
}

func TestTimestamp64_Parts(t *testing.T) {
	at := time.Date(2026, 11, 23, 8, 0, 0, 123e6, time.UTC)
	u := isotone.NewTimestamp64(uint64(at.UnixMilli()), 77)
	if u.Milli() != uint64(at.UnixMilli()) || u.Counter() != 77 || !u.Time().Equal(at) {
		t.Errorf("%d, %d, %v", u.Milli(), u.Counter(), u.Time())
	}
	if ts := u.Timestamp(); ts.Index != 0 || ts.Time != uint64(at.UnixNano())+294 { // 77 · 3.8147 = 293.7
		t.Errorf("%v", ts)
	}
	if late := isotone.Timestamp64(math.MaxUint64).Timestamp(); late.Time != math.MaxUint64 {
		t.Errorf("%v", late)
	}
	for _, parts := range [][2]uint64{{1 << 46, 0}, {0, 1 << 18}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: no panic", parts)
				}
			}()
			isotone.NewTimestamp64(parts[0], parts[1])
		}()
	}
}

func TestTimestamp64_Forms(t *testing.T) {
	const u, digits = isotone.Timestamp64(math.MaxInt64), "9223372036854775807"
	if u.String() != digits {
		t.Errorf("%v", u)
	}
	var back struct{ A, B isotone.Timestamp64 }
	text, err := json.Marshal(map[string]isotone.Timestamp64{"A": u})
	if err != nil || string(text) != `{"A":"`+digits+`"}` {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"A":"`+digits+`","B":`+digits+`}`), &back); err != nil || back.A != u || back.B != u {
		t.Errorf("%+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"A":null}`), &back); err != nil || back.A != u {
		t.Errorf("null: %+v, %v", back, err)
	}
	b, err := u.MarshalBinary()
	var got isotone.Timestamp64
	if err != nil || len(b) != 8 || got.UnmarshalBinary(b) != nil || got != u {
		t.Errorf("%x, %v, %v", b, got, err)
	}
	for _, src := range []any{int64(math.MaxInt64), digits, []byte(digits)} {
		var got isotone.Timestamp64
		if err := got.Scan(src); err != nil || got != u {
			t.Errorf("%T: %v, %v", src, got, err)
		}
	}
	if v, err := u.Value(); err != nil || v != int64(math.MaxInt64) {
		t.Errorf("%v, %v", v, err)
	}
}

func TestTimestamp64_RefusesBadInput(t *testing.T) {
	var u isotone.Timestamp64
	_, tooLate := (isotone.Timestamp64(1) << 63).Value()
	for name, err := range map[string]error{
		"short": u.UnmarshalBinary(make([]byte, 7)), "long": u.UnmarshalBinary(make([]byte, 9)),
		"empty": u.UnmarshalText(nil), "signed": u.UnmarshalText([]byte("+1")), "negative": u.UnmarshalText([]byte("-1")),
		"too large": u.UnmarshalText([]byte("18446744073709551616")), "hex": u.UnmarshalText([]byte("0x1")),
		"SQL negative": u.Scan(int64(-1)), "SQL type": u.Scan(1.5), "SQL null": u.Scan(nil), "SQL range": tooLate,
		"JSON fraction": u.UnmarshalJSON([]byte("1.5")), "JSON exponent": u.UnmarshalJSON([]byte("1e3")),
	} {
		if !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if u != 0 {
		t.Errorf("changed to %v", u)
	}
	if err := u.UnmarshalJSON([]byte(`"1`)); err == nil {
		t.Error("an unfinished string was taken")
	}
}

func TestRange64(t *testing.T) {
	first := isotone.NewTimestamp64(5, 1<<18-1)
	r := isotone.Range64{First: first, Count: 3}
	if last := r.Last(); last.Milli() != 6 || last.Counter() != 1 {
		t.Errorf("last: ms %d, counter %d", last.Milli(), last.Counter())
	}
	var got []isotone.Timestamp64
	for u := range r.All() {
		got = append(got, u)
	}
	if len(got) != 3 || got[0] != first || got[2] != r.Last() {
		t.Errorf("%v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic behind the end")
		}
	}()
	r.At(3)
}
