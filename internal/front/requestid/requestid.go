// Package requestid gives every request an identity that can be followed through all
// services: a request ID, in X-Request-ID, and a W3C trace context, in traceparent.
//
// It owns their validation, and makes new ones for requests without. It knows no server and
// no log: fronts call it with the values of header fields, forward and return the result,
// and put the ID in their log lines.
//
// Sources: W3C Trace Context (Recommendation, 23 November 2021).
package requestid

import (
	crand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"sync"
)

// The names of the fields.
const (
	FieldID          = "X-Request-ID"
	FieldTraceparent = "Traceparent"
	FieldTracestate  = "Tracestate"
)

const (
	// IDBytesMax bounds a request ID from a client, which is copied into logs and headers.
	// The longest in use, two UUIDs, have 73 bytes.
	IDBytesMax = 128
	// IDBytesMade is the length of one that is made here: 128 random bits.
	IDBytesMade = 32
)

// Identity identifies one request.
type Identity struct {
	// ID is the request ID.
	ID string
	// Trace has a new span, of this process.
	Trace Trace
	// Continued says that the client began the trace. Otherwise the tracestate of the
	// request must not be forwarded.
	Continued bool
}

// ValidID reports whether an ID from a client is accepted: 1 to IDBytesMax letters, digits
// and - . _ ~ : / + = @, which need no quoting in logs and header fields.
func ValidID[T string | []byte](id T) bool {
	if len(id) == 0 || len(id) > IDBytesMax {
		return false
	}
	for i := range len(id) {
		if !isID[id[i]] {
			return false
		}
	}
	return true
}

var isID = func() (set [256]bool) {
	for c := range 256 {
		lower := c | 0x20
		set[c] = '0' <= c && c <= '9' || 'a' <= lower && lower <= 'z' && c < 0x80
	}
	for _, c := range []byte("-._~:/+=@") {
		set[c] = true
	}
	return set
}()

// Maker makes identities. It is not safe for concurrent use: each loop has its own, and
// other goroutines use [Start].
type Maker struct{ source *rand.ChaCha8 }

// NewMaker returns a maker with a secret seed: IDs cannot be guessed from others.
func NewMaker() *Maker {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	return NewSeededMaker(seed)
}

// NewSeededMaker returns a maker that makes the same identities for the same seed, for
// tests.
func NewSeededMaker(seed [32]byte) *Maker { return &Maker{source: rand.NewChaCha8(seed)} }

// AppendID appends a new request ID to b.
func (m *Maker) AppendID(b []byte) []byte {
	var raw [IDBytesMade / 2]byte
	_, _ = m.source.Read(raw[:])
	return hex.AppendEncode(b, raw[:])
}

// New returns a new trace. It is not marked as recorded.
func (m *Maker) New() (t Trace) {
	for t.ID == [16]byte{} {
		_, _ = m.source.Read(t.ID[:])
	}
	t.Span = m.span()
	return t
}

// Child returns the same trace with a new span.
func (m *Maker) Child(parent Trace) Trace {
	parent.Span = m.span()
	return parent
}

func (m *Maker) span() (s [8]byte) {
	for s == [8]byte{} {
		_, _ = m.source.Read(s[:])
	}
	return s
}

// Start returns the identity of a request with these values of its fields, "" if it has none
// or more than one. It replaces invalid values by new ones.
func (m *Maker) Start(id, traceparent string) Identity {
	t := Identity{ID: id}
	if !ValidID(id) {
		t.ID = string(m.AppendID(nil))
	}
	parent, ok := ParseTraceparent(traceparent)
	if t.Continued = ok; ok {
		t.Trace = m.Child(parent)
	} else {
		t.Trace = m.New()
	}
	return t
}

// one returns the only value of a field, or "".
func one(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

var makers = sync.Pool{New: func() any { return NewMaker() }}

// Start is [Maker.Start] with all values of the fields, as in net/http. It is safe for
// concurrent use.
func Start(ids, traceparents []string) Identity {
	m := makers.Get().(*Maker)
	defer makers.Put(m)
	return m.Start(one(ids), one(traceparents))
}
