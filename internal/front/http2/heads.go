package http2

import (
	"bytes"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// head is the head of an answer, which many answers have.
type head struct{ fields []field }

// heads are the heads of late, by how HTTP/1.1 spells them.
type heads struct {
	known map[string]*head
	ok    *head // the trailers of a call that was answered
}

// tail returns the trailers of a call that was answered.
func (h *heads) tail() *head {
	if h.ok == nil {
		h.ok = &head{fields: []field{{Name: "grpc-status", Value: "0"}}}
	}
	return h.ok
}

// headsMax bounds the heads that are remembered. Those of hot requests are few, until the second ends and
// the date changes.
const headsMax = 64

// of returns the head that HTTP/1.1 spells so.
func (h *heads) of(text []byte) *head {
	if made := h.known[string(text)]; made != nil {
		return made
	}
	if len(h.known) >= headsMax || h.known == nil {
		h.known = make(map[string]*head, headsMax)
	}
	made := parseHead(string(text))
	h.known[string(text)] = made
	return made
}

func parseHead(text string) *head {
	const before = len("HTTP/1.1 ")
	made := &head{fields: []field{{Name: ":status", Value: text[before : before+len("200")]}}}
	_, text, _ = strings.Cut(text, "\r\n")
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		if name = strings.ToLower(name); name != "connection" {
			made.fields = append(made.fields, field{Name: name, Value: value})
		}
	}
	return made
}

// encoder compresses the heads of the answers on one connection.
type encoder struct {
	hpack *hpack.Encoder // nil until it is needed
	// late are the blocks of heads whose fields are all in the table, from where they stay valid until something is
	// put into it.
	late [4]block
	next int
}

// block is a head as indexes into the table.
type block struct {
	of    *head
	size  int
	bytes [blockMax]byte
}

const blockMax = 24

// block returns the block for h. It is valid until the next call.
func (e *encoder) block(h *head, scratch *bytes.Buffer) []byte {
	for i := range e.late {
		if b := &e.late[i]; b.of == h {
			return b.bytes[:b.size]
		}
	}
	made := e.encode(h.fields, scratch)
	if len(made) > blockMax || !isIndexed(made) {
		return made
	}
	b := &e.late[e.next]
	e.next = (e.next + 1) % len(e.late)
	b.of, b.size = h, copy(b.bytes[:], made)
	return made
}

// encode returns the block for fields.
func (e *encoder) encode(fields []field, scratch *bytes.Buffer) []byte {
	if e.hpack == nil {
		e.hpack = hpack.NewEncoder(scratch)
		e.hpack.SetMaxDynamicTableSizeLimit(tableMax)
	}
	scratch.Reset()
	for _, f := range fields {
		_ = e.hpack.WriteField(f) // the buffer takes everything
	}
	if made := scratch.Bytes(); isIndexed(made) {
		return made
	}
	e.forget() // the indexes have moved
	return scratch.Bytes()
}

func (e *encoder) forget() {
	for i := range e.late {
		e.late[i].of = nil
	}
}

// resize follows a client's setting.
func (e *encoder) resize(max uint32, scratch *bytes.Buffer) {
	if e.hpack == nil {
		e.hpack = hpack.NewEncoder(scratch)
		e.hpack.SetMaxDynamicTableSizeLimit(tableMax)
	}
	e.hpack.SetMaxDynamicTableSize(max)
	e.forget()
}

// isIndexed reports whether a block consists of indexes of one byte only.
func isIndexed(b []byte) bool {
	for _, c := range b {
		if c < 0x80 {
			return false
		}
	}
	return true
}
