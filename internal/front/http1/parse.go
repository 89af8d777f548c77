package http1

import (
	"unsafe"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// Limits of a hot request. A request beyond them is not refused but cold.
const (
	// requestBytesMax bounds a hot request; our own clients send less than a tenth.
	requestBytesMax = 4 << 10
	// binaryMax and jsonMax bound the timestamps of one answer to about 1 KiB, since the
	// loop holds it whole.
	binaryMax = 64
	jsonMax   = 8
)

// verdict classifies the bytes at the front of a connection.
type verdict uint8

const (
	// partial: more bytes may make them a hot request.
	partial verdict = iota
	// hot: they begin with a complete hot request.
	hot
	// cold: they begin with something else, whatever follows.
	cold
)

// target is what a hot request asks for.
type target uint8

const (
	targetTimestamps target = iota
	targetIDs
	targetLive // a live document, by name
	targetInterval
)

// paths has the path of each target. Their first letters differ.
var paths = [...]string{targetTimestamps: "/timestamp", targetIDs: httpapi.IDsPath, targetLive: "/live/", targetInterval: httpapi.IntervalPath}

// statePath is an alias of /live/ and stateName.
const (
	statePath = "/state"
	stateName = "state"
)

// request is a hot request.
type request struct {
	target target
	size   int            // in bytes
	query  int            // size of the raw query, which begins at queryAt
	count  uint64         // of the cluster clock: 0 asks for a reading
	nonce  uint64         // of a reading
	format httpapi.Format // of ids: JSON, or Binary for decimals
	mode   isotone.ReadMode
	u64    bool // with the format Range: of 64-bit timestamps
	legacy bool // of HTTP/1.0
	last   bool // the answer ends the connection
	floor  isotone.Timestamp
	// timeline is the one that it names, "" for none. Order is what it gets; see speaker.mayAsk.
	timeline, order string

	// Of a live document:
	name     span // without one: stateName
	tag      span // the value of If-None-Match
	encoding span // the value of Accept-Encoding

	requestID, trace, credentials span // the values of X-Request-ID, Traceparent and Authorization
}

// isU64 reports whether r asks for 64-bit timestamps.
func (r *request) isU64() bool { return r.u64 || r.format.IsU64() }

// span is a part of a request's bytes; empty: none.
type span struct{ from, to int }

// of returns the part of b, which begins with the request.
func (s span) of(b []byte) string { return text(b[s.from:s.to]) }

// spanOf returns where part is in whole, of which it is a slice.
func spanOf(part, whole []byte) span {
	from := cap(whole) - cap(part)
	return span{from, from + len(part)}
}

const (
	requestMethod = "GET "
	lineEnd       = " HTTP/1.1\r\n"
	legacyLineEnd = " HTTP/1.0\r\n"
)

// queryAt is where the raw query of a request for t begins, if there is one.
func queryAt(t target) int { return len(requestMethod) + len(paths[t]) + len("?") }

// rawQuery returns the query of the request that b begins with.
func (r *request) rawQuery(b []byte) []byte {
	if r.query == 0 {
		return nil
	}
	at := queryAt(r.target)
	return b[at : at+r.query]
}

// parse reads the request at the front of b into r, if that is hot.
//
// It goes through b once, byte by byte, and each decision depends only on the bytes before
// it. So the way a stream is cut into reads makes no difference, and a cold connection is
// detached at its first cold byte. Package head scans complete heads, and does not fit.
func parse(b []byte, r *request) verdict {
	b = b[:min(len(b), requestBytesMax)]
	v := parseRequest(b, r)
	if v == partial && len(b) == requestBytesMax {
		return cold
	}
	return v
}

func parseRequest(b []byte, r *request) verdict {
	*r = request{}
	var q httpapi.Query
	at, v := parseLine(b, r, &q)
	if v != hot {
		return v
	}
	var seen [fieldKinds]bool
	for {
		if v := match(b[at:], "\r\n"); v != cold {
			r.size = at + len("\r\n")
			if v == hot && (!seen[fieldHost] || !r.ask(&q)) {
				return cold
			}
			r.last = r.last || r.legacy && !seen[fieldConnection]
			return v
		}
		f, value, size, v := parseField(b[at:])
		if v != hot {
			return v
		}
		at += size
		if seen[f] && !f.mayRepeat(r.target) || !r.setField(f, value, b) {
			return cold
		}
		seen[f] = true
		if f == fieldAccept {
			q = q.Accepting(text(value))
		}
	}
}

// setField notes a header field of the request, which b begins with, and reports whether it
// can be hot with this value.
func (r *request) setField(f field, value, b []byte) bool {
	switch f {
	case fieldHost:
		return isHost(value)
	case fieldConnection:
		if head.EqualFold(value, "close") {
			r.last = true
			return true
		}
		return head.EqualFold(value, "keep-alive")
	case fieldEncoding:
		r.encoding = spanOf(value, b)
	case fieldTag:
		r.tag = spanOf(value, b)
		return r.target == targetLive // net/http decides what a tag means for other targets
	case fieldRequestID:
		r.requestID = spanOf(value, b)
	case fieldTrace:
		r.trace = spanOf(value, b)
	case fieldAuthorization:
		r.credentials = spanOf(value, b)
		return len(value) > 0 // the handler refuses an empty one
	}
	return true
}

// endLegacyLine matches the end of the first line of HTTP/1.0.
func (r *request) endLegacyLine(b []byte) verdict {
	v := match(b, legacyLineEnd)
	r.legacy = v == hot
	return v
}

// match reports whether b begins with s: partial if b ends too soon.
func match(b []byte, s string) verdict {
	n := min(len(b), len(s))
	switch {
	case string(b[:n]) != s[:n]:
		return cold
	case n < len(s):
		return partial
	default:
		return hot
	}
}

// parseLine reads the first line with its query into r and q, and returns where the next begins.
func parseLine(b []byte, r *request, q *httpapi.Query) (next int, v verdict) {
	if v = match(b, requestMethod); v != hot {
		return 0, v
	}
	at := len(requestMethod)
	if r.target, v = parsePath(b[at:]); v != hot {
		return 0, v
	}
	if r.target == targetLive {
		return parseName(b, at, r)
	}
	at += len(paths[r.target])
	if at < len(b) && b[at] == '?' {
		for at++; at < len(b) && isQuery[b[at]]; {
			at++
		}
		r.query = at - queryAt(r.target)
	}
	if v = match(b[at:], lineEnd); v == cold {
		v = r.endLegacyLine(b[at:])
	}
	if v != hot {
		return 0, v
	}
	var err error
	switch raw := text(r.rawQuery(b)); r.target {
	case targetIDs:
		*q, err = parseIDQuery(raw)
	case targetInterval:
		var waits bool
		if *q, r.nonce, waits, err = parseIntervalQuery(raw); waits {
			return 0, cold
		}
	default:
		*q, err = httpapi.ParseQuery(raw)
	}
	if err != nil || !r.ask(q) {
		return 0, cold
	}
	return at + len(lineEnd), hot
}

// parsePath reads the path of a target.
func parsePath(b []byte) (t target, v verdict) {
	const first = len("/")
	if len(b) > first {
		switch b[first] {
		case paths[targetIDs][first]:
			t = targetIDs
		case paths[targetLive][first]:
			t = targetLive
		case paths[targetInterval][first]:
			t = targetInterval
		case statePath[first]:
			return targetLive, match(b, statePath)
		}
	}
	return t, match(b, paths[t])
}

// nameMax bounds the name of a live document.
const nameMax = 64

// parseName reads the rest of the first line of a request for a live document, whose path
// begins at index at. With a query the request is cold.
func parseName(b []byte, at int, r *request) (next int, v verdict) {
	if b[at+len("/")] == statePath[len("/")] {
		at += len(statePath)
	} else if at, v = parseDocument(b, at, r); v == cold {
		return 0, cold
	}
	if v = match(b[at:], lineEnd); v == cold {
		v = r.endLegacyLine(b[at:])
	}
	return at + len(lineEnd), v
}

// parseDocument reads the path of a live document at index at, and returns where it ends.
func parseDocument(b []byte, at int, r *request) (end int, v verdict) {
	at += len(paths[targetLive])
	from := at
	for at < len(b) && isName[b[at]] && at-from <= nameMax {
		at++
	}
	if n := at - from; n > nameMax || n == 0 && at < len(b) {
		return 0, cold
	}
	r.name = span{from, at}
	return at, hot
}

// document returns the name of the live document that the request asks for; b begins with
// the request.
func (r *request) document(b []byte) string {
	if r.name == (span{}) {
		return stateName
	}
	return r.name.of(b)
}

// parseIDQuery reads the query of a request for ids as if it were for timestamps.
func parseIDQuery(raw string) (httpapi.Query, error) {
	ids, err := httpapi.ParseIDQuery(raw)
	q := httpapi.Query{Count: uint64(ids.Count), Named: ids.Named}
	if ids.JSON {
		q.Format = httpapi.JSON
	}
	return q, err
}

// parseIntervalQuery reads the query of a request to the cluster clock as if it were for timestamps;
// a count of 0 asks for a reading.
func parseIntervalQuery(raw string) (q httpapi.Query, nonce uint64, waits bool, err error) {
	asked, err := httpapi.ParseIntervalQuery(raw)
	q = httpapi.Query{Count: asked.Count, Named: asked.Named}
	if asked.JSON {
		q.Format = httpapi.JSON
	}
	return q, asked.Nonce, asked.Waits, err
}

// ask sets what the request asks for, and reports whether that is hot.
func (r *request) ask(q *httpapi.Query) bool {
	r.count, r.format, r.mode, r.floor, r.timeline = q.Count, q.Format, q.Mode, q.Floor, q.Timeline
	switch q.Format {
	case httpapi.Range:
		return true
	case httpapi.JSON, httpapi.U64JSON:
		return q.Count <= jsonMax
	default:
		return q.Count <= binaryMax
	}
}

// isQuery has the bytes of a query that need no decoding; net/http decodes the others.
var isQuery = charset("=&-._~")

// isName has the bytes of names of live documents, and some more.
var isName = charset("-")

// isHostByte has the bytes of names, addresses and ports.
var isHostByte = charset("-._:[]")

// isFieldName has the bytes of the names in fields.
var isFieldName = charset("-")

// charset returns the set of letters, digits and others.
func charset(others string) (set [256]bool) {
	for c := range 256 {
		lower := c | 0x20
		set[c] = '0' <= c && c <= '9' || 'a' <= lower && lower <= 'z'
	}
	for i := range len(others) {
		set[others[i]] = true
	}
	return set
}

func isHost(value []byte) bool {
	for _, c := range value {
		if !isHostByte[c] {
			return false
		}
	}
	return len(value) > 0
}

// field is what a header field means here.
type field uint8

const (
	fieldUnknown       field = iota // makes the request cold
	fieldIgnored                    // changes no answer, whatever its value
	fieldConnection                 // close, which wins, or keep-alive, which is the default since HTTP/1.1
	fieldEncoding                   // Accept-Encoding; may allow gzip for a live document
	fieldHost                       // required
	fieldAccept                     // may ask for JSON
	fieldTag                        // If-None-Match; for a live document only
	fieldRequestID                  // X-Request-ID
	fieldTrace                      // Traceparent
	fieldAuthorization              // Authorization
	fieldKinds
)

// mayRepeat reports whether a request for t may have f more than once.
func (f field) mayRepeat(t target) bool {
	return f <= fieldConnection || f == fieldEncoding && t != targetLive
}

const fieldNameMax = 17

// fields has the fields of a hot request by the length of their names. Clients and proxies
// send the ignored ones unasked, and neither net/http nor our handlers look at them.
var fields = func() (table [fieldNameMax + 1][]fieldName) {
	add := func(f field, names ...string) {
		for _, name := range names {
			table[len(name)] = append(table[len(name)], fieldName{name, f})
		}
	}
	add(fieldHost, "host")
	add(fieldAccept, "accept")
	add(fieldConnection, "connection")
	add(fieldEncoding, "accept-encoding")
	add(fieldTag, "if-none-match")
	add(fieldRequestID, "x-request-id")
	add(fieldTrace, "traceparent")
	add(fieldAuthorization, "authorization")
	add(fieldIgnored, "user-agent", "accept-language", "cache-control", "pragma", "tracestate", "baggage",
		"via", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
	return table
}()

type fieldName struct {
	name  string // in lower case
	field field
}

func lookUp(name []byte) field {
	if len(name) <= fieldNameMax {
		for _, known := range fields[len(name)] {
			if head.EqualFold(name, known.name) {
				return known.field
			}
		}
	}
	return fieldUnknown
}

// parseField reads one line "Name: value". It returns the value without white space around
// it, and the size of the line.
func parseField(b []byte) (f field, value []byte, size int, v verdict) {
	at := 0
	for at < len(b) && at <= fieldNameMax && isFieldName[b[at]] {
		at++
	}
	switch {
	case at > fieldNameMax, at < len(b) && b[at] != ':':
		return f, nil, 0, cold
	case at == len(b):
		return f, nil, 0, partial
	}
	if f = lookUp(b[:at]); f == fieldUnknown {
		return f, nil, 0, cold
	}
	for at++; at < len(b) && isBlank(b[at]); {
		at++
	}
	begin, end := at, at
	for ; at < len(b) && (' ' <= b[at] && b[at] < 0x7f || b[at] == '\t'); at++ {
		if !isBlank(b[at]) {
			end = at + 1
		}
	}
	return f, b[begin:end], at + len("\r\n"), match(b[at:], "\r\n")
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// text returns b as a string, without a copy. It is valid only as long as b.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
