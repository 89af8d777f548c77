package thriftrpc

import (
	"encoding/json"
	"math"
	"unicode/utf8"
)

const errJSON = malformed("this is not the JSON of a message")

// isSpace reports whether JSON allows c between tokens.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// peek skips white space and returns the next byte without reading it.
func (r *cursor) peek() (byte, error) {
	for r.at < len(r.b) && isSpace(r.b[r.at]) {
		r.at++
	}
	if r.at == len(r.b) {
		return 0, errShort
	}
	return r.b[r.at], nil
}

// expect reads one byte, which must be want.
func (r *cursor) expect(want byte) error {
	got, err := r.peek()
	switch {
	case err != nil:
		return err
	case got != want:
		return errJSON
	}
	r.at++
	return nil
}

// member advances to the next member of an object whose opening brace has been read, and
// returns false at its end. first is true before the first member.
func (r *cursor) member(first bool) (bool, error) {
	got, err := r.peek()
	switch {
	case err != nil:
		return false, err
	case got == '}':
		r.at++
		return false, nil
	case first:
		return true, nil
	case got != ',':
		return false, errJSON
	}
	r.at++
	if got, err = r.peek(); err == nil && got == '}' {
		return false, errJSON
	}
	return true, err
}

// quoted reads a string.
func (r *cursor) quoted() ([]byte, error) {
	if c, err := r.peek(); err != nil {
		return nil, err
	} else if c != '"' {
		return nil, errJSON
	}
	raw, plain, err := r.rawString()
	switch {
	case err != nil:
		return nil, err
	case plain:
		return raw[1 : len(raw)-1], nil
	}
	var s string
	if !utf8.Valid(raw) || json.Unmarshal(raw, &s) != nil {
		return nil, errJSON
	}
	return []byte(s), nil
}

// rawString reads a string with its quotes. plain says that it is ASCII without escapes.
func (r *cursor) rawString() (raw []byte, plain bool, err error) {
	start := r.at
	plain = true
	for i := start + 1; i < len(r.b); i++ {
		if i-start > r.limits.StringBytesMax+1 {
			return nil, false, errStringLong
		}
		switch c := r.b[i]; {
		case c == '"':
			r.at = i + 1
			return r.b[start:r.at], plain, nil
		case c == '\\':
			plain = false
			i++ // an escaped byte does not end the string
		case c < ' ':
			return nil, false, errJSON
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return nil, false, errShort
}

// integer reads a whole number.
func (r *cursor) integer(lowest, highest int64) (int64, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	start := r.at
	if c == '-' {
		r.at++
	}
	for r.at < len(r.b) && '0' <= r.b[r.at] && r.b[r.at] <= '9' {
		r.at++
	}
	digits := r.b[start:r.at]
	if r.at == len(r.b) && len(digits) <= integerBytesMax {
		return 0, errShort
	}
	v, ok := parseInteger(digits)
	if !ok || v < lowest || v > highest {
		return 0, errJSON
	}
	return v, nil
}

// integerBytesMax is enough for 32 bits and a sign.
const integerBytesMax = 11

// parseInteger reads a decimal number as JSON has it, of at most integerBytesMax bytes.
func parseInteger(b []byte) (int64, bool) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || len(b) > integerBytesMax || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var v int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = 10*v + int64(c-'0')
	}
	if len(digits) < len(b) {
		v = -v
	}
	return v, true
}

// fieldNumber parses the name of a field in TJSON, which is its number.
func fieldNumber(b []byte) (int16, error) {
	v, ok := parseInteger(b)
	if !ok || v < math.MinInt16 || v > math.MaxInt16 {
		return 0, errFieldID
	}
	return int16(v), nil
}

// value skips a value whose containers nest at most depth deep.
func (r *cursor) value(depth int) error {
	if _, err := r.peek(); err != nil {
		return err
	}
	start := r.at
	if err := r.extent(depth); err != nil {
		return err
	}
	if raw := r.b[start:r.at]; !utf8.Valid(raw) || !json.Valid(raw) {
		return errJSON
	}
	return nil
}

// extent advances to the end of a value. It does not check all of the syntax.
func (r *cursor) extent(depth int) error {
	for level := 0; ; {
		c, err := r.peek()
		if err != nil {
			return err
		}
		switch c {
		case '"':
			_, _, err = r.rawString()
		case '{', '[':
			r.at++
			if level++; level > depth {
				err = errDepth
			}
		case '}', ']':
			r.at++
			if level--; level < 0 {
				err = errJSON
			}
		case ',', ':':
			r.at++
			if level == 0 {
				err = errJSON
			}
		default:
			err = r.scalar()
		}
		if err != nil || level == 0 {
			return err
		}
	}
}

// scalar advances to the end of a number or a word.
func (r *cursor) scalar() error {
	for ; r.at < len(r.b); r.at++ {
		switch c := r.b[r.at]; {
		case c == ',' || c == ':' || c == ']' || c == '}' || isSpace(c):
			return nil
		case c == '"' || c == '[' || c == '{':
			return errJSON
		}
	}
	return errShort
}
