package conformance

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
)

// Bounds of a command, as nodes have them.
const (
	argsMax    = 256
	commandMax = 32 << 10
)

// malformedError is the error of bytes that are no command.
type malformedError string

func (e malformedError) Error() string { return string(e) }

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r, '*', argsMax)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, malformedError("an empty command")
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLength(r, '$', commandMax)
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		if string(text[size:]) != "\r\n" {
			return nil, malformedError(fmt.Sprintf("an argument of more than %d bytes", size))
		}
		args[i] = string(text[:size])
	}
	return args, nil
}

func readLength(r *bufio.Reader, kind byte, most int) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	digits, found := strings.CutSuffix(line, "\r\n")
	if !found || digits == "" || digits[0] != kind {
		return 0, malformedError(fmt.Sprintf("%.60q, want a line that begins with %q", line, kind))
	}
	n, err := strconv.Atoi(digits[1:])
	if err != nil || n < 0 || n > most {
		return 0, malformedError(fmt.Sprintf("%.60q, want 0 to %d", line, most))
	}
	return n, nil
}

func bulk(text string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text) }

// stamp returns the answer with a timestamp of 16 bytes.
func stamp(t isotone.Timestamp) []byte {
	b := binary.BigEndian.AppendUint64([]byte("$16\r\n"), t.Time)
	return append(binary.BigEndian.AppendUint64(b, t.Index), "\r\n"...)
}

// stampOf returns the answer with the first of a range, as the request wants it.
func stampOf(r *request, first isotone.Timestamp) []byte {
	if r.name == "TS64" {
		return bulk(isotone.Timestamp64From(first).String())
	}
	return stamp(first)
}

// idsOf returns the answer with count IDs from first on, as the request wants them.
func idsOf(r *request, first, count uint64) []byte {
	var b []byte
	if len(r.args) > 1 && !strings.EqualFold(r.args[1], "AS") {
		b = fmt.Appendf(b, "*%d\r\n", count)
	}
	asText := strings.EqualFold(r.option("AS"), "STRING")
	for id := first; id < first+count; id++ {
		if asText {
			b = append(b, bulk(strconv.FormatUint(id, 10))...)
		} else {
			b = fmt.Appendf(b, ":%d\r\n", id)
		}
	}
	return b
}

// slots returns the answer to CLUSTER SLOTS with these addresses, the leader first.
func slots(addrs ...string) []byte {
	b := fmt.Appendf(nil, "*1\r\n*%d\r\n:0\r\n:16383\r\n", 2+len(addrs))
	for _, addr := range addrs {
		colon := strings.LastIndexByte(addr, ':')
		b = append(b, "*3\r\n"...)
		b = append(b, bulk(strings.Trim(addr[:colon], "[]"))...)
		b = fmt.Appendf(b, ":%s\r\n", addr[colon+1:])
		b = append(b, bulk(fmt.Sprintf("%040x", len(b)))...)
	}
	return b
}

// fault returns an error line.
func faultLine(text string) []byte { return []byte("-" + text + "\r\n") }
