package stats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// entry is one request in a log.
type entry struct {
	Record
	backend string // of a proxy: where the request went
}

// errOther says that a line is about something else.
var errOther = errors.New("not about a request")

// jsonLine has the fields of interest in a line. A proxy logs target instead of path, no
// code, and of the times only wall.
type jsonLine struct {
	Time     json.RawMessage `json:"time"`
	Message  string          `json:"msg"`
	ID       string          `json:"request_id"`
	Protocol string          `json:"protocol"`
	Method   string          `json:"method"`
	Path     string          `json:"path"`
	Target   string          `json:"target"`
	Backend  string          `json:"backend"`
	Status   int             `json:"status"`
	Code     string          `json:"code"`
	Wall     *float64        `json:"wall_us"`
	User     *float64        `json:"user_us"`
	System   *float64        `json:"system_us"`
}

const (
	// wallMax is a year in microseconds: anything longer is not the time of a request.
	wallMax = 365 * 24 * 3600 * 1e6
	// timeMax is the end of valid times, in seconds since 1970. Nanoseconds before it fit 64
	// bits.
	timeMax = 1 << 33 // 2242
)

// hint is in every line about a request, and in few others: searching for it is much faster
// than parsing.
var hint = []byte(`"request`)

// textMax bounds the bytes kept of a string in a line.
const textMax = 1 << 10

// parseLine parses a line. The error is errOther for a line about something else, or says why
// a line is broken.
func parseLine(b []byte) (entry, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return entry{}, errOther // plain text
	}
	if b[len(b)-1] != '}' {
		return entry{}, errors.New("a JSON object that does not end")
	}
	if !bytes.Contains(b, hint) {
		return entry{}, errOther
	}
	var l jsonLine
	if !l.scan(b) {
		l = jsonLine{}
		if err := json.Unmarshal(b, &l); err != nil && !isMistyped(err) {
			return entry{}, fmt.Errorf("not JSON: %w", err)
		} else if err != nil && l.isRequest() {
			return entry{}, fmt.Errorf("mistyped: %w", err)
		}
	}
	if !l.isRequest() {
		return entry{}, errOther
	}
	return l.entry()
}

// isMistyped reports whether a field has the wrong type.
func isMistyped(err error) bool { return errors.As(err, new(*json.UnmarshalTypeError)) }

func (l *jsonLine) isRequest() bool { return l.Message == message || l.Message == messageFailed }

// entry checks a line about a request and converts it.
func (l *jsonLine) entry() (e entry, err error) {
	if e.Time, err = parseTime(l.Time); err != nil {
		return e, err
	}
	switch {
	case l.Wall == nil:
		return e, errors.New("wall_us is missing")
	case *l.Wall < 0 || *l.Wall > wallMax:
		return e, fmt.Errorf("wall_us is %v: want microseconds, from 0 to a year", *l.Wall)
	case (l.User == nil) != (l.System == nil):
		return e, errors.New("of user_us and system_us one is missing")
	case l.User != nil && (*l.User < 0 || *l.System < 0 || *l.User > wallMax || *l.System > wallMax):
		return e, fmt.Errorf("user_us is %v and system_us %v: want microseconds, from 0 to a year", *l.User, *l.System)
	}
	e.Wall = fromMicros(*l.Wall)
	if l.User != nil {
		e.User, e.System, e.Measured = fromMicros(*l.User), fromMicros(*l.System), true
	}
	e.ID, e.Protocol, e.Method, e.Path, e.Status, e.Code, e.backend = l.ID, l.Protocol, l.Method, l.Path, l.Status, l.Code, l.Backend
	if e.Path == "" {
		e.Path, _, _ = strings.Cut(l.Target, "?")
	}
	if e.Code == "" {
		e.Code = codeFor(l.Status)
	}
	for _, s := range []*string{&e.ID, &e.Protocol, &e.Method, &e.Path, &e.backend, &e.Code} {
		if len(*s) > textMax {
			*s = strings.Clone((*s)[:textMax])
		}
	}
	return e, nil
}

// parseTime parses a time in either of the two formats of logs.
func parseTime(raw json.RawMessage) (at time.Time, err error) {
	var ms int64
	switch {
	case len(raw) == 0:
		return at, errors.New("time is missing")
	case raw[0] == '"':
		at, err = time.Parse(time.RFC3339Nano, strings.Trim(string(raw), `"`))
	default:
		ms, err = strconv.ParseInt(string(raw), 10, 64)
		at = time.UnixMilli(ms)
	}
	if err != nil || at.Unix() < 0 || at.Unix() >= timeMax {
		return at, fmt.Errorf("time is %.40s: want RFC 3339 or milliseconds, since 1970", raw)
	}
	return at, nil
}
