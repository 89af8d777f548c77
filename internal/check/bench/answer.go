package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
)

// leaderHeader names the leader in a node's refusal, in lower case.
const leaderHeader = "isotone-leader"

// reading is how answers are read.
type reading struct {
	// count is the timestamps in each.
	count uint64
	// static: any body will do, and the timestamps in it mean nothing.
	static bool
}

// parse is the [parser] of HTTP/1.1. It is strict where a mistake could take one answer
// for another: lines end with CRLF, and there is exactly one Content-Length.
func (r reading) parse(b []byte, a *answer) (int, error) {
	*a = answer{}
	line, rest, ok := cutLine(b)
	if !ok {
		return 0, tooLong(b)
	}
	status, ok := parseStatus(line)
	if !ok {
		return 0, fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	a.last = line[7] == '0' // HTTP/1.0
	length := -1
	for {
		if line, rest, ok = cutLine(rest); !ok {
			return 0, tooLong(b)
		}
		if len(line) == 0 {
			break
		}
		if err := parseHeader(line, a, &length); err != nil {
			return 0, err
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("%w: status %d without a Content-Length", errMalformed, status)
	}
	if length > len(rest) {
		return 0, tooLong(b)
	}
	size := len(b) - len(rest) + length
	return size, r.finish(a, status, rest[:length])
}

// finish reads the body.
func (r reading) finish(a *answer, status int, body []byte) error {
	if status != http.StatusOK {
		a.fail(status, body)
		return nil
	}
	return r.issue(a, body)
}

// issue reads the timestamps of a success.
func (r reading) issue(a *answer, body []byte) error {
	a.issued.Count = 1
	switch {
	case r.static:
		_ = a.issued.First.UnmarshalBinary(body[:min(len(body), isotone.TimestampSize)])
	case r.count == 1 && len(body) == isotone.TimestampSize:
		_ = a.issued.First.UnmarshalBinary(body)
	case r.count > 1 && len(body) == isotone.RangeSize:
		_ = a.issued.UnmarshalBinary(body)
		if a.issued.Count != r.count {
			return fmt.Errorf("%w: %d timestamps instead of %d", errMalformed, a.issued.Count, r.count)
		}
	default:
		return fmt.Errorf("%w: status 200 with a body of %d bytes", errMalformed, len(body))
	}
	return nil
}

func tooLong(b []byte) error {
	if len(b) >= answerMax {
		return fmt.Errorf("%w: more than %d bytes", errMalformed, answerMax)
	}
	return nil
}

// cutLine returns the first line of b without its CRLF, and what follows it. A bare LF
// stays part of the line, and is found there.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return nil, nil, false
		}
		i += j + 1
		if i >= 2 && b[i-2] == '\r' {
			return b[:i-2], b[i:], true
		}
	}
}

// parseStatus reads "HTTP/1.1 200 OK".
func parseStatus(line []byte) (int, bool) {
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[7] != '1' && line[7] != '0' || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return 0, false
	}
	status := 0
	for _, digit := range line[9:12] {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		status = 10*status + int(digit-'0')
	}
	return status, status >= 200 // no 1xx is asked for
}

// parseHeader takes what matters from one header line.
func parseHeader(line []byte, a *answer, length *int) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || bytes.IndexByte(line, '\n') >= 0 {
		return fmt.Errorf("%w: header line %.40q", errMalformed, line)
	}
	name, value := line[:colon], line[colon+1:]
	// By length first: most lines end here.
	switch colon {
	case len("content-length"): // and of isotone-leader
		switch {
		case equalFold(name, "content-length"):
			n, ok := parseLength(bytes.TrimSpace(value))
			if !ok || *length >= 0 {
				return fmt.Errorf("%w: header line %.40q", errMalformed, line)
			}
			*length = n
		case equalFold(name, leaderHeader):
			a.leader = string(bytes.TrimSpace(value))
		}
	case len("connection"):
		if equalFold(name, "connection") && equalFold(bytes.TrimSpace(value), "close") {
			a.last = true
		}
	case len("transfer-encoding"):
		if equalFold(name, "transfer-encoding") {
			return fmt.Errorf("%w: header line %.40q", errMalformed, line)
		}
	}
	return nil
}

// parseLength reads a length up to answerMax.
func parseLength(b []byte) (n int, ok bool) {
	for _, digit := range b {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		if n = 10*n + int(digit-'0'); n > answerMax {
			return 0, false
		}
	}
	return n, len(b) > 0
}

// equalFold compares with a name in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// fail takes what a node says of a failure.
func (a *answer) fail(status int, body []byte) {
	var fault struct {
		Error struct {
			Code    isotone.Code
			Message string
		}
	}
	if json.Unmarshal(body, &fault) == nil && knownCode(fault.Error.Code) {
		a.code, a.text = string(fault.Error.Code), fault.Error.Message
		return
	}
	a.code, a.text = "status_"+strconv.Itoa(status), fmt.Sprintf("%.100q", body)
}
