package snowflake

import (
	"math"

	"github.com/isotone/isotone"
)

// Parse parses the decimal form that [ID.String] returns. It accepts no sign, space or
// leading zeros, and no number of more than 63 bits. Its errors match
// [isotone.ErrInvalidArgument].
func Parse(s string) (ID, error) { return parse(s, "decimal", 10, decimalSizeMax) }

// ParseBase62 parses the form that [ID.Base62] returns, as strictly as [Parse]. Its errors
// match [isotone.ErrInvalidArgument].
func ParseBase62(s string) (ID, error) { return parse(s, "base-62", 62, base62SizeMax) }

// ParseHex parses the form that [ID.Hex] returns: exactly 16 digits, in lower case.
// Its errors match [isotone.ErrInvalidArgument].
func ParseHex(s string) (ID, error) {
	if len(s) != HexSize {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument,
			"an ID has %d hexadecimal digits, got %d characters", HexSize, len(s))
	}
	var v uint64
	for i := range len(s) {
		d := digit(s[i], 'a')
		if d >= 16 {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "ID %q: %q is not a digit", s, s[i])
		}
		v = v<<4 | d
	}
	if v > math.MaxInt64 {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "ID %q has more than 63 bits", s)
	}
	return ID(v), nil
}

// parse parses a number without leading zeros. The check in the loop detects every
// overflow of 64 bits by at most sizeMax digits of base 10 or 62.
func parse[T string | []byte](s T, kind string, base uint64, sizeMax int) (ID, error) {
	switch {
	case len(s) == 0:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "an empty %s ID", kind)
	case len(s) > sizeMax:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument,
			"a %s ID has at most %d digits, got %d characters", kind, sizeMax, len(s))
	case s[0] == '0' && len(s) > 1:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "ID %q: want no leading zeros", s)
	}
	var v uint64
	for i := range len(s) {
		d := digit(s[i], 'A')
		if base == 62 && s[i] >= 'a' {
			d = digit(s[i], 'a') + 26
		}
		if d >= base {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "ID %q: %q is not a digit", s, s[i])
		}
		if v > (math.MaxInt64-d)/base {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "ID %q has more than 63 bits", s)
		}
		v = v*base + d
	}
	return ID(v), nil
}

// noDigit is the result of digit for all other bytes. It is larger than every base.
const noDigit = 1 << 8

// digit returns the value of c among 0-9 and the 26 letters from ten on, or noDigit.
func digit(c, ten byte) uint64 {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0')
	case ten <= c && c < ten+26:
		return uint64(c-ten) + 10
	}
	return noDigit
}
