package httpapi

import (
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
)

// IntervalPath is the path of the cluster clock.
const IntervalPath = "/interval"

// IntervalQuery is a request that the cluster clock answers: for a reading, for timestamps made of
// one, or to wait until a timestamp is past.
type IntervalQuery struct {
	// Nonce is that of the answer. It identifies a reading.
	Nonce uint64
	// Count is the number of timestamps, 1 to front.StampsMax; 0: none are asked for.
	Count uint64
	// Wait is the timestamp to wait for, if Waits is set.
	Wait  isotone.Timestamp
	Waits bool
	// JSON asks for an object; otherwise the answer is binary.
	JSON bool
	// Named says that the query itself names the format.
	Named bool
}

// ParseIntervalQuery parses the raw query of a URL as [ParseQuery] does, with the parameters nonce,
// n, wait and format=json. Only one of the first three may be given. The result does not refer to
// raw.
func ParseIntervalQuery(raw string) (IntervalQuery, error) {
	var q IntervalQuery
	asked := ""
	err := eachPair(raw, func(key, value string) (err error) {
		switch key {
		case "nonce":
			if q.Nonce, err = strconv.ParseUint(value, 10, 64); err != nil {
				err = isotone.Errorf(isotone.CodeInvalidArgument, "nonce=%.40q: want a whole number of 64 bits in decimal", value)
			}
		case "n":
			q.Count, err = parseStamps(value)
		case "wait":
			q.Waits = true
			if q.Wait, err = isotone.ParseTimestamp(value); err != nil {
				err = isotone.Errorf(isotone.CodeInvalidArgument, "wait=%.40q: want a timestamp as 32 hexadecimal digits", value)
			}
		case "format":
			if q.Named {
				return givenTwice(key)
			}
			q.JSON, q.Named = true, true
			if value != "json" {
				err = isotone.Errorf(isotone.CodeInvalidArgument, "format=%.40q: want json, or no format for binary", value)
			}
			return err
		default:
			return nil
		}
		if asked == key {
			return givenTwice(key)
		}
		if asked != "" {
			return isotone.Errorf(isotone.CodeInvalidArgument, "%s and %s are given: want one of nonce, n and wait", asked, key)
		}
		asked = key
		return err
	})
	return q, err
}

func parseStamps(s string) (uint64, error) {
	n, ok := front.ParseCount(s)
	if !ok || n > front.StampsMax {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "n=%.40q: want a whole number from 1 to %d", s, front.StampsMax)
	}
	return n, nil
}

// Accepting returns q with the format that an Accept header asks for, given the values of all its
// lines, unless q names one.
func (q IntervalQuery) Accepting(accept ...string) IntervalQuery {
	if !q.Named && len(accept) > 0 && acceptsJSON(accept) {
		q.JSON = true
	}
	return q
}

// ReadingJSONMax bounds a reading in JSON.
const ReadingJSONMax = 192 + 5*20

// AppendReadingJSON appends {"earliest":"…","latest":"…","limit":"…","term":"…","cluster":"…",
// "nonce":"…"}. The numbers are strings, because JavaScript would round them; the cluster is an
// isotone.ClusterID.
func AppendReadingJSON(b []byte, r interval.Reading, nonce uint64) []byte {
	for _, field := range [...]struct {
		name  string
		value uint64
	}{{`{"earliest":"`, r.Earliest}, {`","latest":"`, r.Latest}, {`","limit":"`, r.Limit}, {`","term":"`, r.Term}} {
		b = strconv.AppendUint(append(b, field.name...), field.value, 10)
	}
	b = append(append(b, `","cluster":"`...), isotone.ClusterID(r.Cluster).String()...)
	b = strconv.AppendUint(append(b, `","nonce":"`...), nonce, 10)
	return append(b, `"}`...)
}
