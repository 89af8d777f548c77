package httpapi

import (
	"encoding/hex"
	"strconv"

	"github.com/isotone/isotone"
)

// CodeOK is the code of a successful request for observers; the code of others is the
// isotone.Code.
const CodeOK = "ok"

// The values of Content-Type and Cache-Control.
const (
	ContentTypeBinary = "application/octet-stream"
	ContentTypeJSON   = "application/json"
	ContentTypeText   = "text/plain; charset=utf-8"
	// CacheControl is on every answer: no two are the same.
	CacheControl = "no-store"
)

// FieldCluster is the name of the header field with the [isotone.ClusterID] of the answering
// cluster. It is on answers with timestamps or ids, and on errors, once the node knows the
// ID.
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

// AppendJSON64 appends a 64-bit timestamp as a decimal string. It has at most [JSON64EntryMax] bytes.
func AppendJSON64(b []byte, t isotone.Timestamp64) []byte {
	return append(strconv.AppendUint(append(b, '"'), uint64(t), 10), '"')
}

// JSON64EntryMax bounds one 64-bit timestamp in JSON.
const JSON64EntryMax = len(`"18446744073709551615"`)

// WrongCount returns the error for a backend that issued a number of timestamps other than
// count. Such an answer must not be used: it could contain timestamps that were not issued
// (I3).
func WrongCount(count uint64) *isotone.Error {
	return isotone.Errorf(isotone.CodeInternal, "the answer does not have the %d timestamps asked for", count)
}
