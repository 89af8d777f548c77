package http1

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

const (
	statusOK     = "HTTP/1.1 200 OK\r\n"
	cacheControl = "Cache-Control: " + httpapi.CacheControl + "\r\n"
	dateLayout   = "Mon, 02 Jan 2006 15:04:05 GMT" // RFC 9110 §5.6.7
	closing      = "Connection: close\r\n"
	keeping      = "Connection: keep-alive\r\n"
)

// answers writes answers from parts prepared in advance.
type answers struct {
	wall     func() time.Time
	scheme   string        // of redirect URLs
	protocol string        // for observers
	fields   string        // additional header fields, with their line ends
	named    uint64        // the cluster's ID in these parts; 0: none
	date     []byte        // the Date field, fields, and the field with the cluster's ID
	until    time.Duration // when the next refresh is due, on the loop's clock
	one      []byte        // the whole header of one timestamp in binary
	one64    []byte        // the same of the 64-bit form
	span     []byte        // the whole header of a range
	id       []byte        // the whole header of one id in decimal, of idDigits digits
	reading  []byte        // the whole header of a reading of the cluster clock in binary
	body     []byte        // scratch for JSON
	fault    faultAnswer
}

// faultAnswer caches the latest error answer: while a node is overloaded or does not lead,
// all its answers are the same.
type faultAnswer struct {
	err    isotone.Error
	query  []byte
	code   string
	answer []byte // empty: there is none
}

// refresh renews the date, and the cluster's ID. It reads the wall clock once a second.
// The loop's time is that of the beginning of the turn, so a refresh is at worst early.
func (a *answers) refresh(now time.Duration, cluster uint64) {
	if now < a.until && cluster == a.named {
		return
	}
	wall := a.wall().UTC()
	a.until = now + time.Second - time.Duration(wall.Nanosecond())
	a.date = append(wall.AppendFormat(append(a.date[:0], "Date: "...), dateLayout), "\r\n"...)
	a.date = append(a.date, a.fields...)
	if a.named = cluster; cluster != 0 {
		a.date = append(a.date, httpapi.FieldCluster+": "...)
		a.date = append(append(a.date, isotone.ClusterID(cluster).String()...), "\r\n"...)
	}
	a.one = append(a.appendHeader(a.one[:0], isotone.TimestampSize, httpapi.ContentTypeBinary, false), "\r\n"...)
	a.one64 = append(a.appendHeader(a.one64[:0], isotone.Timestamp64Size, httpapi.ContentTypeBinary, false), "\r\n"...)
	a.span = append(a.appendHeader(a.span[:0], isotone.RangeSize, httpapi.ContentTypeBinary, false), "\r\n"...)
	a.id = append(a.appendHeader(a.id[:0], idDigits, httpapi.ContentTypeText, false), "\r\n"...)
	a.reading = append(a.appendHeader(a.reading[:0], interval.ReadingSize, httpapi.ContentTypeBinary, false), "\r\n"...)
	a.fault.answer = a.fault.answer[:0]
}

// append appends the answers of p to b, and returns their code. last says that the
// connection ends after them.
func (a *answers) append(b []byte, p *pendingBatch, last bool) (_ []byte, code string) {
	next := p.answering()
	for next.has() {
		b = a.appendNext(b, &next, last && next.index == len(p.asks)-1)
	}
	return b, next.code
}

// answering is how far the answers of a batch were written.
type answering struct {
	*pendingBatch
	failed  error
	index   int // of the next
	queries []byte
	traced  []traced
	code    string // of the latest
}

func (p *pendingBatch) answering() answering {
	return answering{pendingBatch: p, failed: p.err(), queries: p.queries, traced: p.traced, code: httpapi.CodeOK}
}

func (n *answering) has() bool { return n.index < len(n.asks) }

// appendNext appends the next answer of n. last says that the connection ends after it.
func (a *answers) appendNext(b []byte, n *answering, last bool) []byte {
	i, at, q := n.index, len(b), n.asks[n.index]
	if n.failed == nil {
		b = a.appendIssued(b, q.format, n.batch.Ranges[i], last)
	} else {
		b, n.code = a.appendFault(b, n.failed, n.queries[:q.query], last)
		n.queries = n.queries[q.query:]
	}
	if q.legacy {
		b = makeLegacy(b, at, last)
	}
	if len(n.traced) > 0 && n.traced[0].index == i {
		n.front.tracer.end(b, at, a.protocol, n.code, &n.traced[0])
		n.traced = n.traced[1:]
	}
	if n.measured != nil {
		b = n.front.meter.end(b, at, a.protocol, n.code, &n.measured[i])
	}
	n.index++
	return b
}

// makeLegacy turns the answer that begins at b[at] into one of HTTP/1.0, in which the connection
// has to be kept explicitly. last says that the answer ends the connection, and says so.
func makeLegacy(b []byte, at int, last bool) []byte {
	b[at+len("HTTP/1.")] = '0'
	if last {
		return b
	}
	return addField(b, at, keeping)
}

// addField adds a header field to the answer that begins at b[at].
func addField(b []byte, at int, field string) []byte {
	return slices.Insert(b, at+bytes.Index(b[at:], []byte("\r\n\r\n"))+len("\r\n"), []byte(field)...)
}

// appendIssued appends a successful answer.
func (a *answers) appendIssued(b []byte, f httpapi.Format, issued isotone.Range, last bool) []byte {
	switch f {
	case httpapi.Range:
		if last {
			b = a.appendHeader(b, isotone.RangeSize, httpapi.ContentTypeBinary, last)
			b = append(b, "\r\n"...)
		} else {
			b = append(b, a.span...)
		}
		b, _ = issued.AppendBinary(b)
		return b
	case httpapi.JSON:
		a.body = appendJSON(a.body[:0], issued.Count, issued.At)
		b = a.appendHeader(b, len(a.body), httpapi.ContentTypeJSON, last)
		b = append(b, "\r\n"...)
		return append(b, a.body...)
	case httpapi.U64:
		return a.append64(b, front.Range64(issued), last)
	case httpapi.U64JSON:
		a.body = appendJSON64(a.body[:0], front.Range64(issued))
		b = a.appendHeader(b, len(a.body), httpapi.ContentTypeJSON, last)
		b = append(b, "\r\n"...)
		return append(b, a.body...)
	}
	if issued.Count == 1 && !last {
		b = append(b, a.one...)
		b, _ = issued.First.AppendBinary(b)
		return b
	}
	b = a.appendHeader(b, int(issued.Count)*isotone.TimestampSize, httpapi.ContentTypeBinary, last)
	b = append(b, "\r\n"...)
	for i := range issued.Count {
		b, _ = issued.At(i).AppendBinary(b)
	}
	return b
}

// append64 appends a successful answer with 64-bit timestamps in binary.
func (a *answers) append64(b []byte, issued isotone.Range64, last bool) []byte {
	if issued.Count == 1 && !last {
		b = append(b, a.one64...)
	} else {
		b = a.appendHeader(b, int(issued.Count)*isotone.Timestamp64Size, httpapi.ContentTypeBinary, last)
		b = append(b, "\r\n"...)
	}
	for t := range issued.All() {
		b = binary.BigEndian.AppendUint64(b, uint64(t))
	}
	return b
}

func appendJSON64(b []byte, issued isotone.Range64) []byte {
	b = append(b, httpapi.JSONBegin...)
	for t := range issued.All() {
		if t > issued.First {
			b = append(b, ',')
		}
		b = httpapi.AppendJSON64(b, t)
	}
	return append(b, httpapi.JSONEnd...)
}

// appendJSON appends n timestamps; at returns the i-th.
func appendJSON(b []byte, n uint64, at func(i uint64) isotone.Timestamp) []byte {
	b = append(b, httpapi.JSONBegin...)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = httpapi.AppendJSON(b, at(i))
	}
	return append(b, httpapi.JSONEnd...)
}

// appendHeader appends the header of a successful answer, without the blank line.
func (a *answers) appendHeader(b []byte, length int, contentType string, last bool) []byte {
	b = append(b, statusOK+cacheControl...)
	b = appendContent(b, length, contentType)
	b = append(b, a.date...)
	if last {
		b = append(b, closing...)
	}
	return b
}

func appendContent(b []byte, length int, contentType string) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(length), 10)
	b = append(b, "\r\nContent-Type: "...)
	b = append(b, contentType...)
	return append(b, "\r\n"...)
}

// appendFault appends the error answer for err to a request with that query.
func (a *answers) appendFault(b []byte, err error, query []byte, last bool) (_ []byte, code string) {
	made := &a.fault
	e, direct := err.(*isotone.Error)
	if direct && !last && len(made.answer) > 0 && *e == made.err && bytes.Equal(query, made.query) {
		return append(b, made.answer...), made.code
	}
	f := httpapi.FaultOf(err)
	if !direct || last {
		return a.spellFault(b, &f, targetTimestamps, query, last), string(f.Code)
	}
	made.answer = a.spellFault(made.answer[:0], &f, targetTimestamps, query, last)
	made.query = append(made.query[:0], query...)
	made.err, made.code = *e, string(f.Code)
	return append(b, made.answer...), made.code
}

func (a *answers) spellFault(b []byte, f *httpapi.Fault, t target, query []byte, last bool) []byte {
	body := httpapi.Body(f.Code, f.Message)
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(f.Status), 10)
	b = append(b, ' ')
	b = append(b, f.Reason()...)
	b = append(b, "\r\n"+cacheControl...)
	b = appendContent(b, len(body), httpapi.ContentTypeJSON)
	f.Fields(a.scheme, paths[t], string(query), func(name, value string) {
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, "\r\n"...)
	})
	b = append(b, a.date...)
	if last {
		b = append(b, closing...)
	}
	b = append(b, "\r\n"...)
	return append(b, body...)
}
