package driver

import (
	"math/bits"
	"strconv"

	"github.com/isotone/isotone"
)

// digitsMax is how many digits always fit 64 bits; a number below 2¹²⁸ has at most 39.
const digitsMax = 19

// ParseNumber returns a decimal number below 2¹²⁸: its upper 64 bits as the time of a timestamp, the lower ones as
// the index. It has no sign and no leading zero. The error is an [Error] of the kind Malformed.
func ParseNumber(s string) (n isotone.Timestamp, err error) {
	ok := s != "" && len(s) <= 39 && (s[0] != '0' || s == "0")
	for rest := s; ok && rest != ""; {
		part := rest[:min(digitsMax, len(rest))]
		rest = rest[len(part):]
		n, ok = shifted(n, part)
	}
	if !ok {
		return isotone.Timestamp{}, Errorf(Malformed, "%.60q is no decimal number from 0 to 2^128-1", s)
	}
	return n, nil
}

// shifted returns n with more digits, at most digitsMax, behind its own.
func shifted(n isotone.Timestamp, digits string) (isotone.Timestamp, bool) {
	factor := uint64(1)
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return n, false
		}
		factor *= 10
	}
	more, err := strconv.ParseUint(digits, 10, 64)
	carry, lower := bits.Mul64(n.Index, factor)
	over, upper := bits.Mul64(n.Time, factor)
	lower, c := bits.Add64(lower, more, 0)
	upper, c = bits.Add64(upper, carry, c)
	return isotone.Timestamp{Time: upper, Index: lower}, err == nil && over == 0 && c == 0
}

// AppendNumber appends a number as [ParseNumber] reads it.
func AppendNumber(b []byte, n isotone.Timestamp) []byte {
	if n.Time == 0 {
		return strconv.AppendUint(b, n.Index, 10)
	}
	const billions = 1e18
	upper, rest := n.Time/billions, n.Time%billions
	lower, last := bits.Div64(rest, n.Index, billions)
	b = AppendNumber(b, isotone.Timestamp{Time: upper, Index: lower})
	for factor := uint64(billions / 10); factor > 0; factor /= 10 {
		b = append(b, byte('0'+last/factor%10))
	}
	return b
}
