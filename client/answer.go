package client

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// What an answer may hold at most. Whoever sends more is no node, and is left.
const (
	valueBytesMax = 4 << 10 // of a string
	valueItemsMax = 4 << 10 // in all arrays together
	valueDepthMax = 5       // arrays within arrays
)

var errMalformed = errors.New("malformed answer")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// fault is an answer that says no.
type fault struct {
	code    isotone.Code
	message string
	leader  string // whom to ask instead; only with CodeNotLeader
	again   bool   // the request may be sent again
}

// final reports whether to ask again is of no use.
func (f *fault) final() bool { return !f.again }

func (f *fault) err() *isotone.Error {
	return &isotone.Error{Code: f.code, Message: f.message, Leader: f.leader}
}

// readAnswer reads the answer to a request and leaves what it gives in b, or returns
// what the node says instead. An error ends the connection.
func readAnswer(r *bufio.Reader, b *batch) (*fault, error) {
	line, err := readLine(r)
	switch {
	case err != nil:
		return nil, err
	case line[0] == '-':
		return parseFault(string(line[1:]))
	case b.kind == kindID:
		b.ids, err = readIDs(r, line, b.count())
		return nil, err
	case string(line) != "$16":
		return nil, malformed("%.40q instead of a timestamp", line)
	}
	text, err := r.Peek(isotone.TimestampSize + 2)
	if err != nil {
		return nil, err
	}
	if text[isotone.TimestampSize] != '\r' || text[isotone.TimestampSize+1] != '\n' {
		return nil, malformed("a timestamp of more than %d bytes", isotone.TimestampSize)
	}
	b.first.Time, b.first.Index = binary.BigEndian.Uint64(text), binary.BigEndian.Uint64(text[8:])
	if b.count()-1 > math.MaxUint64-b.first.Index {
		return nil, malformed("%d timestamps from index %d on", b.count(), b.first.Index)
	}
	_, _ = r.Discard(len(text))
	return nil, nil
}

// readIDs reads the rest of an answer with ids, which begins with line.
func readIDs(r *bufio.Reader, line []byte, count uint64) ([]snowflake.ID, error) {
	if count == 1 && line[0] == ':' {
		id, err := parseID(line)
		return []snowflake.ID{id}, err
	}
	if n, err := parseSize(line, '*', idBatchMax); err != nil || uint64(n) != count {
		return nil, malformed("%.40q instead of %d ids", line, count)
	}
	ids := make([]snowflake.ID, count)
	for i := range ids {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		if ids[i], err = parseID(line); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func parseID(line []byte) (snowflake.ID, error) {
	n, err := strconv.ParseUint(string(line[1:]), 10, 63)
	if line[0] != ':' || err != nil {
		return 0, malformed("%.40q instead of an id", line)
	}
	return snowflake.ID(n), nil
}

// readLine reads a line that is not empty, and cuts off its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, malformed("a line of more than %d bytes", r.Size())
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, malformed("%.40q is no line", line)
	}
	return line[:len(line)-2], nil
}

// parseFault reads "WORD text".
func parseFault(line string) (*fault, error) {
	word, text, _ := strings.Cut(line, " ")
	f := &fault{message: text}
	switch word {
	case "MOVED": // slot host:port
		_, addr, _ := strings.Cut(text, " ")
		colon := strings.LastIndexByte(addr, ':')
		if colon < 0 {
			return nil, malformed("%.100q", line)
		}
		// Redis writes IPv6 addresses without brackets.
		f.leader = net.JoinHostPort(strings.Trim(addr[:colon], "[]"), addr[colon+1:])
		if checkAddr(f.leader) != nil {
			return nil, malformed("%.100q", line)
		}
		f.code, f.again, f.message = isotone.CodeNotLeader, true, "the leader is "+f.leader
	case "CLUSTERDOWN":
		f.code, f.again = isotone.CodeNoLeader, true
	case "TRYAGAIN", "LOADING", "BUSY", "MASTERDOWN":
		f.code, f.again = isotone.CodeOverloaded, true
	case "NOAUTH", "WRONGPASS", "NOPERM":
		f.code = isotone.CodeUnauthorized
	case "WRONGCLUSTER":
		f.code = isotone.CodeWrongCluster
	case "ERR":
		f.code = isotone.CodeInvalidArgument
		if rest, ok := strings.CutPrefix(text, "internal: "); ok {
			f.code, f.message = isotone.CodeInternal, rest
		}
	default:
		f.code, f.message = isotone.CodeInternal, line
	}
	return f, nil
}

// checkAddr returns an error unless addr is host:port.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return isotone.Errorf(isotone.CodeInvalidArgument, "address %.100q: want host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, " \r\n\t/") {
		return isotone.Errorf(isotone.CodeInvalidArgument, "address %.100q: want host:port", addr)
	}
	return nil
}

// A value is any answer: an array, a text, or a number.
type value struct {
	kind  byte // as in RESP
	text  string
	int   int64
	items []value
}

// readValue reads any answer of RESP2. What the node says instead of one is a fault.
func readValue(r *bufio.Reader) (value, *fault, error) {
	room := valueItemsMax
	line, err := peekFault(r)
	if err != nil || line != "" {
		if err != nil {
			return value{}, nil, err
		}
		f, err := parseFault(line)
		return value{}, f, err
	}
	v, err := readItem(r, valueDepthMax, &room)
	return v, nil, err
}

// peekFault reads an answer that is an error.
func peekFault(r *bufio.Reader) (string, error) {
	first, err := r.Peek(1)
	if err != nil || first[0] != '-' {
		return "", err
	}
	line, err := readLine(r)
	if err != nil {
		return "", err
	}
	return string(line[1:]), nil
}

func readItem(r *bufio.Reader, depth int, room *int) (value, error) {
	line, err := readLine(r)
	if err != nil {
		return value{}, err
	}
	v := value{kind: line[0]}
	switch v.kind {
	case '+':
		v.text = string(line[1:])
	case ':':
		if v.int, err = strconv.ParseInt(string(line[1:]), 10, 64); err != nil {
			return v, malformed("%.40q", line)
		}
	case '$':
		v.text, err = readBulk(r, line)
	case '*':
		var n int
		if n, err = parseSize(line, '*', *room); err != nil || depth == 0 {
			return v, malformed("%.40q", line)
		}
		*room -= n
		for range n {
			item, err := readItem(r, depth-1, room)
			if err != nil {
				return v, err
			}
			v.items = append(v.items, item)
		}
	default:
		return v, malformed("%.40q", line)
	}
	return v, err
}

func readBulk(r *bufio.Reader, line []byte) (string, error) {
	if string(line) == "$-1" {
		return "", nil
	}
	n, err := parseSize(line, '$', valueBytesMax)
	if err != nil {
		return "", err
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	if text[n] != '\r' || text[n+1] != '\n' {
		return "", malformed("a text of more than %d bytes", n)
	}
	return string(text[:n]), nil
}

// parseSize reads a length after its kind.
func parseSize(line []byte, kind byte, most int) (int, error) {
	n, err := strconv.ParseUint(string(line[1:]), 10, 31)
	if line[0] != kind || err != nil || int(n) > most {
		return 0, malformed("%.40q", line)
	}
	return int(n), nil
}

// view is what a node says of the cluster.
type view struct {
	leader  string
	members []string
}

// viewOf reads the answer to CLUSTER SLOTS: ranges of slots, with the nodes that have
// them, the leader first. Of a cluster of several shards the first range will do: there
// is none here. A node without a host is the one that was asked.
func viewOf(v value, asked string) (view, error) {
	var seen view
	for _, slots := range v.items {
		if len(slots.items) < 3 {
			return view{}, malformed("slots without a node")
		}
		for i, node := range slots.items[2:] {
			if len(node.items) < 2 || node.items[1].kind != ':' {
				return view{}, malformed("a node without a port")
			}
			host := node.items[0].text
			if host == "" || host == "?" {
				host, _, _ = net.SplitHostPort(asked)
			}
			addr := net.JoinHostPort(strings.Trim(host, "[]"), strconv.FormatInt(node.items[1].int, 10))
			if checkAddr(addr) != nil || len(seen.members) == membersMax {
				return view{}, malformed("a node at %.100q, or too many", addr)
			}
			if i == 0 && seen.leader == "" {
				seen.leader = addr
			}
			seen.members = append(seen.members, addr)
		}
	}
	if seen.leader == "" {
		return view{}, malformed("no node has slots")
	}
	return seen, nil
}
