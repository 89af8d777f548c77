package httpapi

import (
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// OraclePath is the path of the oracles of reads and writes of timelines.
const OraclePath = "/oracle"

// ParseOracleQuery parses the raw query of a URL: op=write, peek, read, or apply with at=MS; timeline and mode as in [ParseQuery], and as strictly.
// Errors match isotone.ErrInvalidArgument.
func ParseOracleQuery(raw string) (q Query, err error) {
	q.Count = 1
	values := map[string]string{}
	err = eachPair(raw, func(key, value string) error {
		switch key {
		case "op", "at", "timeline", "mode":
		default:
			return nil
		}
		if _, twice := values[key]; twice {
			return givenTwice(key)
		}
		values[key] = value
		return nil
	})
	if err != nil {
		return q, err
	}
	if name, named := values["timeline"]; named {
		if q.Timeline, err = parseTimeline(name); err != nil {
			return q, err
		}
	}
	if mode, has := values["mode"]; has {
		if q.Mode, err = isotone.ParseReadMode(mode); err != nil {
			return q, err
		}
	}
	at, has := values["at"]
	q.Op, q.At, err = front.ParseReadWrite(values["op"], at, has)
	return q, err
}

// AppendOracleAnswer appends {"ms":…}: a time in unix milliseconds. It has at most 44 bits, which every reader of JSON keeps.
func AppendOracleAnswer(b []byte, ms uint64) []byte {
	return append(strconv.AppendUint(append(b, `{"ms":`...), ms, 10), '}')
}
