package snowflake

import "strconv"

// ID is a snowflake: 63 bits, never negative. IDs compare as their numbers do. A
// [Layout] defines what the bits mean.
//
// Methods of a negative ID do not panic, but their results cannot be parsed.
type ID int64

const (
	// HexSize is the length of the result of [ID.Hex].
	HexSize = 16
	// decimalSizeMax and base62SizeMax are the lengths of the largest ID.
	decimalSizeMax = 19
	base62SizeMax  = 11
)

// base62Digits are in byte order, so that strings of the same length compare as their
// numbers do.
const base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

const hexDigits = "0123456789abcdef"

// String returns id in decimal, 1 to 19 digits.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// AppendDecimal appends the form of [ID.String] to b. It allocates only if b lacks
// capacity.
func (id ID) AppendDecimal(b []byte) []byte { return strconv.AppendInt(b, int64(id), 10) }

// Base62 returns id with the digits 0-9, A-Z, a-z, 1 to 11 of them, without leading
// zeros.
func (id ID) Base62() string {
	var b [base62SizeMax]byte
	i, v := len(b), uint64(id)
	for {
		i--
		b[i] = base62Digits[v%62]
		if v /= 62; v == 0 {
			return string(b[i:])
		}
	}
}

// Hex returns id as 16 digits 0-9, a-f, with leading zeros. Strings compare as IDs
// do.
func (id ID) Hex() string {
	var b [HexSize]byte
	v := uint64(id)
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = hexDigits[v&15]
		v >>= 4
	}
	return string(b[:])
}
