package httpapi

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
)

// CountMax bounds the timestamps of an answer other than a range: 1 MiB in binary, some
// 7 MB in JSON.
const CountMax = 65536

// Format is the encoding of timestamps.
type Format uint8

const (
	// Binary: each timestamp's bytes, one after the other.
	Binary Format = iota
	// Range: the bytes of the first, and the count.
	Range
	// JSON: an object with all of them.
	JSON
	// U64: those of the 64-bit form, each one's 8 bytes, one after the other.
	U64
	// U64JSON: the same as an object with decimal strings.
	U64JSON
)

// IsU64 reports whether the format is of timestamps of the 64-bit form.
func (f Format) IsU64() bool { return f >= U64 }

// Query is a request for timestamps.
type Query struct {
	Count  uint64
	Format Format
	// Mode is isotone.ReadDefault if the request names none.
	Mode isotone.ReadMode
	// Floor is a timestamp that all answers have to be larger than; zero for none.
	Floor isotone.Timestamp
	// Timeline is "" for the default order.
	Timeline string
	// Op and At are those of [front.Batch].
	Op timeline.Op
	At uint64
	// Named says that the query itself names the format.
	Named bool
}

// ParseQuery parses the raw query of a URL. It is stricter than net/url: n, format, mode,
// floor and timeline may each occur once, and n is plain digits. Other parameters are ignored, but must be well
// formed too. Errors match isotone.ErrInvalidArgument. The result does not refer to raw.
func ParseQuery(raw string) (Query, error) {
	q := Query{Count: 1}
	if raw == "" {
		return q, nil
	}
	var seenN, seenMode, seenFloor, seenTimeline bool
	err := eachPair(raw, func(key, value string) (err error) {
		var seen *bool
		switch key {
		case "n":
			seen = &seenN
			q.Count, err = parseCount(value)
		case "format":
			seen = &q.Named
			q.Format, err = parseFormat(value)
		case "mode":
			seen = &seenMode
			q.Mode, err = isotone.ParseReadMode(value)
		case "floor":
			seen = &seenFloor
			q.Floor, err = parseFloor(value)
		case "timeline":
			seen = &seenTimeline
			q.Timeline, err = parseTimeline(value)
		default:
			return nil
		}
		if *seen {
			return givenTwice(key)
		}
		*seen = true
		return err
	})
	if err != nil {
		return q, err
	}
	if q.Format != Range && q.Count > CountMax {
		return q, isotone.Errorf(isotone.CodeInvalidArgument, "n=%d: want at most %d%s", q.Count, CountMax, q.Format.orRange())
	}
	return q, nil
}

// orRange says how to get more timestamps at once.
func (f Format) orRange() string {
	if f.IsU64() {
		return ""
	}
	return ", or format=range for more"
}

// eachPair calls f with each pair of a raw query, until it fails.
func eachPair(raw string, f func(key, value string) error) error {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		key, value, err := parsePair(pair)
		if err == nil {
			err = f(key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func givenTwice(key string) error {
	return isotone.Errorf(isotone.CodeInvalidArgument, "%s is given twice", key)
}

// Accepting returns q with the format that an Accept header asks for, given the
// values of all its lines, unless q names one. With format=u64 the header still decides between binary and
// JSON.
func (q Query) Accepting(accept ...string) Query {
	switch {
	case q.Named && q.Format != U64, len(accept) == 0, !acceptsJSON(accept):
	case q.Named:
		q.Format = U64JSON
	default:
		q.Format = JSON
	}
	return q
}

// parsePair splits and decodes one key=value. A semicolon is refused, because
// parsers disagree on whether it separates pairs.
func parsePair(pair string) (key, value string, err error) {
	if strings.Contains(pair, ";") {
		return "", "", isotone.Errorf(isotone.CodeInvalidArgument, "query parameter %.40q: write a semicolon as %%3B", pair)
	}
	key, value, _ = strings.Cut(pair, "=")
	if !strings.ContainsAny(pair, "%+") {
		return key, value, nil
	}
	key, keyErr := url.QueryUnescape(key)
	value, valueErr := url.QueryUnescape(value)
	if keyErr != nil || valueErr != nil {
		return "", "", isotone.Errorf(isotone.CodeInvalidArgument, "query parameter %.40q: malformed percent-encoding", pair)
	}
	return key, value, nil
}

// parseCount parses the parameter n.
func parseCount(s string) (uint64, error) {
	n, ok := front.ParseCount(s)
	if !ok {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "n=%.40q: want a whole number from 1 to %d", s, uint64(isotone.RangeCountMax))
	}
	return n, nil
}

// parseTimeline parses the parameter timeline. The result does not refer to s.
func parseTimeline(s string) (string, error) {
	if err := timeline.CheckName(s); err != nil {
		return "", isotone.Errorf(isotone.CodeInvalidArgument, "timeline: %v", err)
	}
	return strings.Clone(s), nil
}

// parseFloor parses the parameter floor. Its error matches isotone.ErrInvalidArgument.
func parseFloor(s string) (isotone.Timestamp, error) {
	floor, ok := front.ParseFloor(s)
	if !ok {
		return floor, isotone.Errorf(isotone.CodeInvalidArgument, "floor=%.40q: want a timestamp as 32 hexadecimal digits, or one of 64 bits in decimal", s)
	}
	return floor, nil
}

func parseFormat(s string) (Format, error) {
	switch s {
	case "range":
		return Range, nil
	case "json":
		return JSON, nil
	case "u64":
		return U64, nil
	}
	return Binary, isotone.Errorf(isotone.CodeInvalidArgument, "format=%.40q: want range, json or u64, or no format for binary", s)
}

// acceptsJSON reports whether an Accept header (RFC 9110 §12.5.1) prefers application/json
// to application/octet-stream. Wildcards get binary.
func acceptsJSON(accept []string) bool {
	var json, octets float64
	for _, line := range accept {
		for element := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(element, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case ContentTypeJSON:
				json = max(json, quality(params))
			case ContentTypeBinary:
				octets = max(octets, quality(params))
			}
		}
	}
	return json > octets
}

// quality returns the weight of a media range: 1 by default, 0 if it is malformed.
func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if name != "q" && name != "Q" {
			continue
		}
		if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
		return 0
	}
	return 1
}
