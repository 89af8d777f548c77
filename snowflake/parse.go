package snowflake

import (
	"math"

	"github.com/isotone/isotone"
)

// Parse reads the decimal form that [ID.String] writes, and nothing else: no sign,
// no space, no leading zeros, no number of more than 63 bits. Its errors match
// [isotone.ErrInvalidArgument].
func Parse(s string) (ID, error) { return parse(s, "decimal", 10, decimalSizeMax) }

// ParseBase62 reads the form that [ID.Base62] writes, as strictly as [Parse] does.
func ParseBase62(s string) (ID, error) { return parse(s, "base-62", 62, base62SizeMax) }

// ParseHex reads the form that [ID.Hex] writes: exactly 16 digits, in lower case.
// Its errors match [isotone.ErrInvalidArgument].
func ParseHex(s string) (ID, error) {
	if len(s) != HexSize {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument,
			"an id has %d hexadecimal digits, got %d characters", HexSize, len(s))
	}
	var v uint64
	for i := range len(s) {
		d := digit(s[i], 'a')
		if d >= 16 {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "id %q: %q is no digit", s, s[i])
		}
		v = v<<4 | d
	}
	if v > math.MaxInt64 {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "id %q has more than 63 bits", s)
	}
	return ID(v), nil
}

// parse reads a number without leading zeros. sizeMax digits of any base above
// cannot overflow 64 bits unnoticed: see the check in the loop.
func parse[T string | []byte](s T, kind string, base uint64, sizeMax int) (ID, error) {
	switch {
	case len(s) == 0:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "an empty %s id", kind)
	case len(s) > sizeMax:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument,
			"a %s id has at most %d digits, got %d characters", kind, sizeMax, len(s))
	case s[0] == '0' && len(s) > 1:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "id %q: a leading zero", s)
	}
	var v uint64
	for i := range len(s) {
		d := digit(s[i], 'A')
		if base == 62 && s[i] >= 'a' {
			d = digit(s[i], 'a') + 26
		}
		if d >= base {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "id %q: %q is no digit", s, s[i])
		}
		if v > (math.MaxInt64-d)/base {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "id %q has more than 63 bits", s)
		}
		v = v*base + d
	}
	return ID(v), nil
}

// noDigit is what digit returns for all other bytes: larger than every base.
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
