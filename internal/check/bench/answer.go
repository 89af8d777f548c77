package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/head"
)

// leaderHeader is the header field, in lower case, with the leader's address in a refusal.
const leaderHeader = "isotone-leader"

// reading is how answers are read.
type reading struct {
	// count is the number of timestamps in each.
	count uint64
	// static: any body is accepted, and the timestamps read from it are meaningless.
	static bool
	// clock: answers are readings of the cluster clock with this nonce, see readings.go.
	clock bool
	nonce uint64
}

// parse is the [parser] of HTTP/1.1. It is strict where laxness could mistake one answer
// for another: see package head; in addition it requires exactly one Content-Length.
func (r reading) parse(b []byte, a *answer) (int, error) {
	*a = answer{}
	whole, malformed := head.Complete(b, answerMax)
	if malformed != nil {
		return 0, fmt.Errorf("%w: %w", errMalformed, malformed)
	}
	if !whole && bytes.IndexByte(b, '\n') < 0 {
		return 0, nil
	}
	line, malformed := head.ParseStatusLine(b)
	if malformed != nil || line.Status < 200 { // the requests ask for no 1xx
		return 0, fmt.Errorf("%w: status line %.40q", errMalformed, b)
	}
	if !whole {
		return 0, nil
	}
	a.last = line.Minor == 0
	length := -1
	var f head.Field
	for at := line.End; ; at = int(f.End) {
		if last, err := f.Scan(b, at); err != nil {
			return 0, fmt.Errorf("%w: %w", errMalformed, err)
		} else if last {
			break
		}
		if err := a.take(f.Name(b), f.Value(b), &length); err != nil {
			return 0, err
		}
	}
	rest := b[f.End:]
	if length < 0 {
		return 0, fmt.Errorf("%w: status %d without a Content-Length", errMalformed, line.Status)
	}
	if length > len(rest) {
		return 0, tooLong(b)
	}
	return int(f.End) + length, r.finish(a, line.Status, rest[:length])
}

// finish reads the body.
func (r reading) finish(a *answer, status int, body []byte) error {
	if status != http.StatusOK {
		a.fail(status, body)
		return nil
	}
	return r.issue(a, body)
}

// issue reads the timestamps of a successful answer.
func (r reading) issue(a *answer, body []byte) error {
	a.issued.Count = 1
	switch {
	case r.clock:
		return r.tell(a, body)
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
// does not end the line.
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

// take reads one header field, if it matters.
func (a *answer) take(name, value []byte, length *int) error {
	// By length first, which excludes most fields.
	switch len(name) {
	case len("content-length"): // and of isotone-leader
		switch {
		case head.EqualFold(name, "content-length"):
			n, ok := head.ParseLength(value)
			if !ok || n > answerMax || *length >= 0 {
				return fmt.Errorf("%w: Content-Length %.40q", errMalformed, value)
			}
			*length = int(n)
		case head.EqualFold(name, leaderHeader):
			a.leader = string(value)
		}
	case len("connection"):
		if head.EqualFold(name, "connection") && head.EqualFold(value, "close") {
			a.last = true
		}
	case len("transfer-encoding"):
		if head.EqualFold(name, "transfer-encoding") {
			return fmt.Errorf("%w: Transfer-Encoding %.40q", errMalformed, value)
		}
	}
	return nil
}

// fail reads the error that a node answered with.
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
