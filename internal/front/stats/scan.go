package stats

import (
	"encoding/json"
	"strconv"
	"strings"
)

// scanMax bounds the lines that scan reads: their strings keep the whole line in memory.
const scanMax = 4 << 10

// scan parses a line as this program writes it: one flat object of plain strings and numbers
// without white space, some ten times faster than encoding/json. It reports false for
// anything else, valid or not.
func (l *jsonLine) scan(b []byte) bool {
	*l = jsonLine{}
	if len(b) < 2 || b[0] != '{' || len(b) > scanMax {
		return false
	}
	text := string(b) // one allocation for all strings of a line
	for at := 1; ; at++ {
		key, next, ok := scanString(text, at)
		if !ok || next >= len(text) || text[next] != ':' || strings.ToLower(key) != key {
			return false
		}
		if at, ok = l.scanValue(text, key, next+1); !ok || at >= len(text) {
			return false
		}
		switch text[at] {
		case '}':
			return at == len(text)-1
		case ',':
		default:
			return false
		}
	}
}

// scanString returns the string at index at, and the index after it.
func scanString(text string, at int) (s string, next int, ok bool) {
	if at >= len(text) || text[at] != '"' {
		return "", 0, false
	}
	from := at + 1
	for at = from; at < len(text) && text[at] != '"'; at++ {
		if c := text[at]; c < ' ' || c == '\\' || c >= 0x7f {
			return "", 0, false
		}
	}
	if at == len(text) {
		return "", 0, false
	}
	return text[from:at], at + 1, true
}

// scanValue parses the value of a key, and returns the index after it.
func (l *jsonLine) scanValue(text, key string, at int) (next int, ok bool) {
	if at < len(text) && text[at] == '"' {
		value, next, ok := scanString(text, at)
		return next, ok && l.setString(key, value, text[at:next])
	}
	next = at
	if next < len(text) && text[next] == '-' {
		next++
	}
	whole := next
	next = digitsEnd(text, next)
	if next == whole || text[whole] == '0' && next > whole+1 {
		return 0, false
	}
	if next < len(text) && text[next] == '.' {
		fraction := next + 1
		if next = digitsEnd(text, fraction); next == fraction {
			return 0, false
		}
	}
	return next, l.setNumber(key, text[at:next])
}

// digitsEnd returns the index after the digits at index at.
func digitsEnd(text string, at int) int {
	for at < len(text) && '0' <= text[at] && text[at] <= '9' {
		at++
	}
	return at
}

// setString sets the field of a key, and reports false if the field is a number.
func (l *jsonLine) setString(key, value, raw string) bool {
	switch key {
	case "time":
		l.Time = json.RawMessage(raw)
	case "msg":
		l.Message = value
	case keyID:
		l.ID = value
	case keyProtocol:
		l.Protocol = value
	case keyMethod:
		l.Method = value
	case keyPath:
		l.Path = value
	case keyTarget:
		l.Target = value
	case keyBackend:
		l.Backend = value
	case keyCode:
		l.Code = value
	case keyStatus, keyWall, keyUser, keySystem:
		return false
	}
	return true
}

// setNumber sets the field of a key, and reports false if the field is a string or the number
// is out of range.
func (l *jsonLine) setNumber(key, digits string) bool {
	switch key {
	case "time":
		l.Time = json.RawMessage(digits)
	case keyStatus:
		n, err := strconv.Atoi(digits)
		l.Status = n
		return err == nil
	case keyWall:
		return setMicros(&l.Wall, digits)
	case keyUser:
		return setMicros(&l.User, digits)
	case keySystem:
		return setMicros(&l.System, digits)
	case "msg", keyID, keyProtocol, keyMethod, keyPath, keyTarget, keyBackend, keyCode:
		return false
	}
	return true
}

func setMicros(to **float64, digits string) bool {
	us, err := strconv.ParseFloat(digits, 64)
	*to = &us
	return err == nil
}
