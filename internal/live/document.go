package live

import (
	"strconv"
	"strings"
	"time"
)

// ReadyBytesMax bounds the bodies of prepared answers for the fast path: as much as an I/O
// loop buffers for a client that does not read. Prepared answers are made again each second,
// for the date.
const ReadyBytesMax = 256 << 10

const (
	contentType = "application/json"
	dateLayout  = "Mon, 02 Jan 2006 15:04:05 GMT" // RFC 9110 §5.6.7
	// exposed are the fields that a page of another origin may read beside the body.
	exposed = "ETag, Age"
)

// Document is one state of a document. It is immutable.
type Document struct {
	content *content
	age     int64 // seconds; -1: the content is fresh
	plain   answer
	zipped  answer // without a tag: there is no compressed form
}

// answer is the answers with one encoding.
type answer struct {
	tag       string
	head      []byte // with the blank line
	whole     []byte // head and body; nil if that is too much
	unchanged []byte // the 304
	// fields are those of the 200 but for its date and type, for net/http.
	fields []headerField
	body   []byte
}

type headerField struct {
	name  string
	value []string
}

// style is what the answers of all documents have in common.
type style struct {
	cacheControl []string
	vary         []string
	allowOrigin  []string // nil: by request, or none at all
}

func newStyle(interval time.Duration, allowed origins) *style {
	s := &style{cacheControl: []string{"no-cache"}, vary: []string{"Accept-Encoding"}}
	if interval >= time.Second {
		s.cacheControl[0] = "max-age=" + strconv.FormatInt(int64(interval/time.Second), 10)
	}
	switch {
	case allowed.any:
		s.allowOrigin = []string{"*"}
	case allowed.vary():
		s.vary[0] += ", Origin"
	}
	return s
}

func newDocument(c *content, s *style, now time.Time, age int64) *Document {
	d := &Document{content: c, age: age}
	date := now.UTC().Format(dateLayout)
	d.plain = newAnswer(c.raw, c.tag, "", s, date, age)
	if c.zipped != nil {
		d.zipped = newAnswer(c.zipped, c.zippedTag, "gzip", s, date, age)
	}
	return d
}

func newAnswer(body []byte, tag, encoding string, s *style, date string, age int64) answer {
	a := answer{tag: tag, body: body}
	a.set("Cache-Control", s.cacheControl)
	a.set("Etag", []string{tag})
	a.set("Vary", s.vary)
	if s.allowOrigin != nil {
		a.set("Access-Control-Allow-Origin", s.allowOrigin)
		a.set("Access-Control-Expose-Headers", []string{exposed})
	}
	if age >= 0 {
		a.set("Age", []string{strconv.FormatInt(age, 10)})
	}
	a.unchanged = a.spell("304 Not Modified", date)
	a.set("Content-Length", []string{strconv.Itoa(len(body))})
	a.set("Content-Type", []string{contentType})
	if encoding != "" {
		a.set("Content-Encoding", []string{encoding})
	}
	a.head = a.spell("200 OK", date)
	if len(body) <= ReadyBytesMax {
		a.whole = make([]byte, 0, len(a.head)+len(body))
		a.whole = append(append(a.whole, a.head...), body...)
		a.head = a.whole[:len(a.head):len(a.head)]
	}
	return a
}

func (a *answer) set(name string, value []string) {
	a.fields = append(a.fields, headerField{name, value})
}

func (a *answer) spell(status, date string) []byte {
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + status + "\r\n")
	for _, f := range a.fields {
		b.WriteString(f.name + ": " + f.value[0] + "\r\n")
	}
	b.WriteString("Date: " + date + "\r\n\r\n")
	return []byte(b.String())
}

// Version counts the contents since the set was made: 1 is the first.
func (d *Document) Version() uint64 { return d.content.version }

// ETag returns the entity tag, with its quotes, of the JSON as it is.
func (d *Document) ETag() string { return d.content.tag }

// JSON returns the document as its source gave it. It must not be changed.
func (d *Document) JSON() []byte { return d.content.raw }

// Age returns how old the document is, and whether it is stale at all: its source
// has failed since.
func (d *Document) Age() (age time.Duration, stale bool) {
	return time.Duration(max(0, d.age)) * time.Second, d.age >= 0
}

// Response returns a whole HTTP/1.1 answer, head and body, to a GET or HEAD of this
// document; the bytes must not be changed. It does not allocate or read the clock: the date
// is at most a second old as long as the set is open.
//
// acceptGzip is the result of [AcceptsGzip], ifNoneMatch the value of If-None-Match or "".
// The answer is nil if the body is larger than [ReadyBytesMax]. Use [Set.Handler] then, for a
// request with an Origin unless the origins are "*", and for all other methods. The head of
// the answer to GET is the answer to HEAD; insert further fields before the blank line.
func (d *Document) Response(acceptGzip, head bool, ifNoneMatch string) []byte {
	a := d.answer(acceptGzip)
	switch {
	case ifNoneMatch != "" && matchesTag(ifNoneMatch, a.tag):
		return a.unchanged
	case head:
		return a.head
	}
	return a.whole
}

func (d *Document) answer(acceptGzip bool) *answer {
	if acceptGzip && d.zipped.tag != "" {
		return &d.zipped
	}
	return &d.plain
}
