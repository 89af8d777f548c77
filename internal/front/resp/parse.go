package resp

import (
	"bytes"
	"fmt"
)

// Limits of one command (I7). Most of ours have a few dozen bytes, the names and versions that
// clients announce more.
const (
	// argsMax bounds the arguments, the name of the command included.
	argsMax = 256
	// bulkBytesMax bounds the bytes of all arguments of an array together.
	bulkBytesMax = 32 << 10
	// inlineMax bounds an inline command, in bytes.
	inlineMax = 4 << 10
)

// UnreadMin is the least Limits.UnreadMax of a listener: a whole command with all its
// lengths.
const UnreadMin = bulkBytesMax + (argsMax+1)*16

// protocolError is an error after which the start of the next command is unknown.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

const (
	errArrayLength = protocolError("invalid multibulk length")
	errBulkLength  = protocolError("invalid bulk length")
	errBulkEnd     = protocolError("a bulk string does not end where its length says")
	errInlineLong  = protocolError("too big inline request")
	errInlineArgs  = protocolError("too many arguments in inline request")
	errInlineQuote = protocolError("unbalanced quotes in request")
)

// request is one parsed command. It is reused for the next.
type request struct {
	// args are the name of the command and its arguments, as slices of the input; none for
	// a blank line or an empty array, which get no answer.
	args  [][]byte
	store [argsMax][]byte
}

// parse reads the command at the front of b. It uses nothing if the command is incomplete.
//
// It reads from left to right and never beyond the end of the command, so the pieces in
// which a command arrives make no difference.
func (q *request) parse(b []byte) (used int, err error) {
	q.args = q.store[:0]
	switch {
	case len(b) == 0:
		return 0, nil
	case b[0] == '*':
		return q.parseArray(b)
	default:
		return q.parseInline(b)
	}
}

// parseArray reads an array of bulk strings.
func (q *request) parseArray(b []byte) (used int, err error) {
	count, at, err := parseLength(b, 1, errArrayLength)
	if err != nil || at == 0 {
		return 0, err
	}
	if count > argsMax {
		return 0, errArrayLength
	}
	total := 0
	for range count {
		switch {
		case at == len(b):
			return 0, nil
		case b[at] != '$':
			return 0, protocolError(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, begin, err := parseLength(b, at+1, errBulkLength)
		if err != nil || begin == 0 {
			return 0, err
		}
		if total += size; size < 0 || total > bulkBytesMax {
			return 0, errBulkLength
		}
		end := begin + size
		if len(b) < end+2 {
			return 0, nil
		}
		if b[end] != '\r' || b[end+1] != '\n' {
			return 0, errBulkEnd
		}
		q.args = append(q.args, b[begin:end:end])
		at = end + 2
	}
	return at, nil
}

// parseLength reads a whole number and the end of its line, from b[at] on. next is where
// the next line begins, or 0 if the line is incomplete. A number that is not in canonical
// form returns bad.
func parseLength(b []byte, at int, bad protocolError) (n, next int, err error) {
	const digitsMax = 9
	negative := at < len(b) && b[at] == '-'
	if negative {
		at++
	}
	first := at
	for ; at < len(b) && '0' <= b[at] && b[at] <= '9'; at++ {
		if at-first == digitsMax {
			return 0, 0, bad
		}
		n = 10*n + int(b[at]-'0')
	}
	switch {
	case at == len(b):
		return 0, 0, nil
	case b[at] != '\r' || at == first || b[first] == '0' && (negative || at > first+1):
		return 0, 0, bad
	case at+1 == len(b):
		return 0, 0, nil
	case b[at+1] != '\n':
		return 0, 0, bad
	}
	if negative {
		n = -n
	}
	return n, at + 2, nil
}

// parseInline reads an inline command: a line of words.
func (q *request) parseInline(b []byte) (used int, err error) {
	end := bytes.IndexByte(b[:min(len(b), inlineMax)], '\n')
	switch {
	case end >= 0:
	case len(b) >= inlineMax:
		return 0, errInlineLong
	default:
		return 0, nil
	}
	line := bytes.TrimSuffix(b[:end], []byte{'\r'})
	for {
		for len(line) > 0 && isSpace(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return end + 1, nil
		}
		if len(q.args) == argsMax {
			return 0, errInlineArgs
		}
		var word []byte
		if word, line, err = cutWord(line); err != nil {
			return 0, err
		}
		q.args = append(q.args, word)
	}
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' || c == 0 }

// cutWord splits the first word off a line that does not begin with a space. As in Redis,
// quotes may begin within a word and must end it.
func cutWord(line []byte) (word, rest []byte, err error) {
	for i, c := range line {
		switch {
		case isSpace(c):
			return line[:i:i], line[i:], nil
		case c == '"' || c == '\'':
			quoted, rest, ok := unquote(line[i+1:], c)
			if !ok || len(rest) > 0 && !isSpace(rest[0]) {
				return nil, nil, errInlineQuote
			}
			return append(line[:i:i], quoted...), rest, nil
		}
	}
	return line, nil, nil
}

// unquote reads up to the closing quote. Double quotes allow the escapes \n \r \t \b \a and
// \xHH; a backslash before any other byte stands for that byte.
func unquote(b []byte, quote byte) (text, rest []byte, ok bool) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == quote:
			return text, b[i+1:], true
		case c == '\\' && quote == '\'' && i+1 < len(b) && b[i+1] == '\'':
			c, i = '\'', i+1
		case c == '\\' && quote == '"' && i+1 < len(b):
			var size int
			c, size = unescape(b[i+1:])
			i += size
		}
		text = append(text, c)
	}
	return nil, nil, false
}

// unescape reads what follows a backslash, which is not empty.
func unescape(b []byte) (c byte, size int) {
	if b[0] == 'x' && len(b) >= 3 {
		high, highOK := unhex(b[1])
		low, lowOK := unhex(b[2])
		if highOK && lowOK {
			return high<<4 | low, 3
		}
	}
	switch b[0] {
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'b':
		return '\b', 1
	case 'a':
		return '\a', 1
	}
	return b[0], 1
}

func unhex(c byte) (v byte, ok bool) {
	lower := c | 0x20
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= lower && lower <= 'f':
		return lower - 'a' + 10, true
	}
	return 0, false
}
