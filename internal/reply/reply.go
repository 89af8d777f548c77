// Package reply reads replies of the Redis protocol, as a client does: those of RESP2, and the maps, nulls and messages of RESP3. It bounds
// everything that a server could announce, and maps error replies to the codes of
// package isotone. It does not connect or write; callers own the connection.
package reply

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/isotone/isotone"
)

// ErrMalformed matches the error for bytes that are not a valid reply, or exceed a limit.
// The connection is then unusable.
var ErrMalformed = errors.New("malformed answer")

// Malformed returns an error that matches [ErrMalformed].
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Limits bound one reply. The size of the bufio.Reader bounds each line.
type Limits struct {
	Bytes int // of a bulk string
	Items int // of all arrays together
	Depth int // of arrays within arrays; 0 allows no array
}

// Value is a reply other than an error.
type Value struct {
	Kind  byte    // '+', ':', '$', '*', or '>' for a message, as in RESP
	Text  []byte  // of '+' and '$'; nil only for the null string
	Int   int64   // of ':'
	Items []Value // of '*' and '>'; a map is an array of its keys and values
}

// Read reads one reply. It returns an [Error] for an error reply, which leaves the
// connection usable, and otherwise an error of r or one that matches [ErrMalformed]. Memory
// grows with what has arrived and the limits, never with an announced length beyond them.
func Read(r *bufio.Reader, limits Limits) (Value, error) {
	line, err := Line(r)
	if err != nil {
		return Value{}, err
	}
	if line[0] == '-' {
		return Value{}, Error(line[1:])
	}
	return read(r, line, limits.Bytes, &limits.Items, limits.Depth)
}

func read(r *bufio.Reader, line []byte, bytes int, items *int, depth int) (v Value, err error) {
	v.Kind = line[0]
	switch v.Kind {
	case '+':
		v.Text = append([]byte{}, line[1:]...)
	case ':':
		if v.Int, err = strconv.ParseInt(string(line[1:]), 10, 64); err != nil {
			return v, Malformed("%.40q", line)
		}
	case '$':
		v.Text, err = readBulk(r, line, bytes)
	case '_':
		v.Kind = '$'
	case '*', '%', '>':
		n, err := Size(line, *items)
		if v.Kind == '%' {
			v.Kind, n = '*', 2*n
		}
		if err != nil || depth == 0 || n > *items {
			return v, Malformed("%.40q", line)
		}
		*items -= n
		for range n {
			if line, err = Line(r); err != nil {
				return v, err
			}
			item, err := read(r, line, bytes, items, depth-1)
			if err != nil {
				return v, err
			}
			v.Items = append(v.Items, item)
		}
	default:
		return v, Malformed("%.40q", line)
	}
	return v, err
}

func readBulk(r *bufio.Reader, line []byte, max int) ([]byte, error) {
	if string(line) == "$-1" {
		return nil, nil
	}
	n, err := Size(line, max)
	if err != nil {
		return nil, err
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	if string(text[n:]) != "\r\n" {
		return nil, Malformed("a string of more than %d bytes", n)
	}
	return text[:n], nil
}

// Line reads one line and returns it without its CRLF: at least the byte that names its
// kind. The line is valid until the next read.
func Line(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, Malformed("a line of more than %d bytes", r.Size())
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, Malformed("%.40q is not a line", line)
	}
	return line[:len(line)-2], nil
}

// Size returns the length that a line such as "$16" announces, at most max.
func Size(line []byte, max int) (int, error) {
	n, err := strconv.ParseUint(string(line[1:]), 10, 31)
	if err != nil || int(n) > max {
		return 0, Malformed("%.40q", line)
	}
	return int(n), nil
}

// A timestamp is a bulk string of 16 bytes.
const (
	timestampHead = "$16\r\n"
	timestampTail = "\r\n"
	// TimestampSize is the length of a whole reply that is a timestamp.
	TimestampSize = len(timestampHead) + isotone.TimestampSize + len(timestampTail)
)

// ParseTimestamp parses a timestamp at the start of b, which is TimestampSize bytes long.
// It reports false if b is only the beginning of one. It does not allocate.
func ParseTimestamp(b []byte) (ts isotone.Timestamp, complete bool, err error) {
	const at, end = len(timestampHead), len(timestampHead) + isotone.TimestampSize
	if len(b) >= TimestampSize && string(b[:at]) == timestampHead && string(b[end:TimestampSize]) == timestampTail {
		ts.Time, ts.Index = binary.BigEndian.Uint64(b[at:]), binary.BigEndian.Uint64(b[at+8:])
		return ts, true, nil
	}
	if head := min(len(b), at); len(b) >= TimestampSize || string(b[:head]) != timestampHead[:head] {
		err = Malformed("%.40q instead of a timestamp", b)
	}
	return ts, false, err
}
