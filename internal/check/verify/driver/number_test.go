package driver_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

func TestParseNumber_ItTakesNothingElse(t *testing.T) {
	for _, s := range []string{
		"", "-1", "+1", " 1", "1 ", "01", "00", "1.0", "1e3", "0x1", "abc", "12345678901234567890x", "²",
		"340282366920938463463374607431768211456",  // 2^128
		"999999999999999999999999999999999999999",  // 39 digits
		"1000000000000000000000000000000000000000", // 40
	} {
		if n, err := driver.ParseNumber(s); err == nil {
			t.Errorf("%q: %v: want an error", s, n)
		}
	}
}

func FuzzParseNumber(f *testing.F) {
	for _, edge := range []uint64{0, 1, 9, 10, 1e18 - 1, 1e18, 1e19, math.MaxUint64} {
		f.Add(edge, edge)
		f.Add(uint64(0), edge)
		f.Add(edge, uint64(0))
	}
	f.Fuzz(func(t *testing.T, upper, lower uint64) {
		n := isotone.Timestamp{Time: upper, Index: lower}
		b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, upper), lower)
		want := new(big.Int).SetBytes(b).String()
		if got := string(driver.AppendNumber(nil, n)); got != want {
			t.Errorf("%d, %d: %s: want %s", upper, lower, got, want)
		}
		if got, err := driver.ParseNumber(want); err != nil || got != n {
			t.Errorf("%s: %v %v: want %v", want, got, err, n)
		}
	})
}
