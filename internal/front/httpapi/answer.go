package httpapi

import (
	"encoding/hex"
	"strconv"

	"github.com/isotone/isotone"
)

// CodeOK is what observers are told of a request that did not fail; of others they
// are told the isotone.Code.
const CodeOK = "ok"

// The values of Content-Type and Cache-Control.
const (
	ContentTypeBinary = "application/octet-stream"
	ContentTypeJSON   = "application/json"
	ContentTypeText   = "text/plain; charset=utf-8"
	// CacheControl is on every answer: none is the same twice.
	CacheControl = "no-store"
)

// FieldCluster is the name of the header field that says which cluster answers, as an
// [isotone.ClusterID]. It is on answers that carry timestamps or ids, and on failures,
// once the node knows the ID.
const FieldCluster = "Isotone-Cluster"

// Timestamps in JSON: JSONBegin, entries with commas between them, JSONEnd.
const (
	JSONBegin = `{"timestamps":[`
	JSONEnd   = "]}"
)

// JSONEntryMax bounds one timestamp in JSON: 32 bytes of names and marks, two
// numbers of up to 20 digits, 32 hexadecimal digits.
const JSONEntryMax = 32 + 2*20 + 2*isotone.TimestampSize

// AppendJSON appends {"time":"…","index":"…","hex":"…"}. The numbers are strings
// because JavaScript would round them.
func AppendJSON(b []byte, t isotone.Timestamp) []byte {
	var binary [isotone.TimestampSize]byte
	_, _ = t.AppendBinary(binary[:0])
	b = append(b, `{"time":"`...)
	b = strconv.AppendUint(b, t.Time, 10)
	b = append(b, `","index":"`...)
	b = strconv.AppendUint(b, t.Index, 10)
	b = append(b, `","hex":"`...)
	b = hex.AppendEncode(b, binary[:])
	return append(b, `"}`...)
}

// WrongCount returns the fault of a backend that gave another number of timestamps than
// was asked for. Fewer would be read as others' timestamps (I3): give none.
func WrongCount(count uint64) *isotone.Error {
	return isotone.Errorf(isotone.CodeInternal, "the answer does not have the %d timestamps asked for", count)
}
