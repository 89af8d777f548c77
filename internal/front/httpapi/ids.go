package httpapi

import (
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// IDsPath is the path of ids.
const IDsPath = "/api/snowflake"

// IDQuery is a request for ids.
type IDQuery struct {
	Count int // 1 to CountMax
	// JSON asks for an object; otherwise the answer is a list in decimal.
	JSON bool
	// Named says that the query itself names the format.
	Named bool
}

// ParseIDQuery parses the raw query of a URL as [ParseQuery] does, with the parameters n and
// format=json. The result does not refer to raw.
func ParseIDQuery(raw string) (IDQuery, error) {
	q := IDQuery{Count: 1}
	seenN := false
	err := eachPair(raw, func(key, value string) error {
		switch key {
		case "n":
			if seenN {
				return givenTwice(key)
			}
			n, err := parseCount(value)
			if err != nil || n > CountMax {
				return isotone.Errorf(isotone.CodeInvalidArgument, "n=%.40q: want a whole number from 1 to %d", value, CountMax)
			}
			q.Count, seenN = int(n), true
		case "format":
			if q.Named {
				return givenTwice(key)
			}
			if value != "json" {
				return isotone.Errorf(isotone.CodeInvalidArgument, "format=%.40q: want json, or no format for decimals", value)
			}
			q.JSON, q.Named = true, true
		}
		return nil
	})
	return q, err
}

// Accepting returns q with the format that an Accept header asks for, given the values of
// all its lines, unless q names one.
func (q IDQuery) Accepting(accept ...string) IDQuery {
	if !q.Named && len(accept) > 0 && acceptsJSON(accept) {
		q.JSON = true
	}
	return q
}

// ContentType returns the type of the answer.
func (q IDQuery) ContentType() string {
	if q.JSON {
		return ContentTypeJSON
	}
	return ContentTypeText
}

// idDigitsMax is the length of the largest id in decimal.
const idDigitsMax = 19

// SizeMax bounds the body of the answer in bytes.
func (q IDQuery) SizeMax() int {
	return len(`{"ids":[]}`) + q.Count*(idDigitsMax+len(`"",`))
}

// AppendIDs appends the body: decimals separated by line ends, or {"ids":["…",…]} with strings,
// because JavaScript would round the numbers.
func (q IDQuery) AppendIDs(b []byte, ids []snowflake.ID) []byte {
	if !q.JSON {
		for i, id := range ids {
			if i > 0 {
				b = append(b, '\n')
			}
			b = strconv.AppendInt(b, int64(id), 10)
		}
		return b
	}
	b = append(b, `{"ids":[`...)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendInt(b, int64(id), 10)
		b = append(b, '"')
	}
	return append(b, "]}"...)
}
