package bench

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// newHTTP2 returns HTTP/2, with TLS if tlsConfig is not nil: HTTP/1.1 whose requests and answers are translated.
func newHTTP2(o *Options, tlsConfig *tls.Config) *pipelined {
	p := newHTTP1(o, tlsConfig)
	p.transport.Protocols = new(http.Protocols)
	p.transport.Protocols.SetHTTP2(tlsConfig != nil)
	p.transport.Protocols.SetUnencryptedHTTP2(tlsConfig == nil)
	scheme := "http"
	if tlsConfig != nil {
		p.tls.NextProtos = []string{http2.NextProtoTLS}
		scheme = "https"
	}
	p.wrap = func(c net.Conn, addr string) (net.Conn, error) {
		if secure, ok := c.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
			return nil, fmt.Errorf("%s does not speak HTTP/2", addr)
		}
		fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: scheme}, {Name: ":authority", Value: addr}, {Name: ":path", Value: requestPath(o)}}
		if header := p.auth.header(); header != "" {
			fields = append(fields, hpack.HeaderField{Name: "authorization", Value: header})
		}
		return translate(c, len(p.request(addr)), p.depth, fields)
	}
	return p
}

const (
	frameHeader = 9
	// frameMax is the largest payload of a frame that nodes may send: the default of RFC 9113.
	frameMax = 16 << 10
	// windowGrowth is how much more a node may send on a connection whenever it has sent as much.
	windowGrowth = 1 << 20
)

// translated is a connection of HTTP/2 that is written and read as one of HTTP/1.1: what is written are requests, all of which are the
// same, and what is read are their answers in that order. Only what the load generator looks at is translated.
type translated struct {
	net.Conn
	size         int    // of a request in HTTP/1.1
	block, again []byte // the fields of the next request, and of those after it
	next, oldest uint32 // streams: of the next request, and of the oldest one without an answer
	answers      []streamed
	leaving      bool // the node wants no more requests
	received     int  // on the connection, since its window grew
	frames       []byte
	in           []byte // read; the first frame begins it
	has          int    // bytes of it
	out          []byte // answers in HTTP/1.1
	given        int    // bytes of it
	decoder      *hpack.Decoder
	head         streamed // of the latest block of fields
	memo         []byte   // that block, if it means the same each time
}

// streamed is the answer of a stream.
type streamed struct {
	head   []byte // in HTTP/1.1, without a Content-Length
	length int    // announced; -1: unknown
	body   []byte
	done   bool
}

// translate begins HTTP/2 on c. A request has size bytes in HTTP/1.1, and at most depth are under way.
func translate(c net.Conn, size, depth int, fields []hpack.HeaderField) (*translated, error) {
	t := &translated{Conn: c, size: size, next: 1, oldest: 1, answers: make([]streamed, depth), in: make([]byte, 2*(frameHeader+frameMax))}
	t.decoder = hpack.NewDecoder(4096, t.field)
	var begin, block bytes.Buffer
	begin.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&begin, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	_ = framer.WriteWindowUpdate(0, windowGrowth)
	encoder := hpack.NewEncoder(&block)
	for _, to := range []*[]byte{&t.block, &t.again} { // the second time by their indexes
		block.Reset()
		for _, f := range fields {
			_ = encoder.WriteField(f)
		}
		*to = bytes.Clone(block.Bytes())
	}
	_, err := c.Write(begin.Bytes())
	return t, err
}

// Write sends as many requests as b has.
func (t *translated) Write(b []byte) (int, error) {
	t.frames = t.frames[:0]
	for range len(b) / t.size {
		if t.next > 1<<31-1 {
			return 0, fmt.Errorf("a connection of HTTP/2 has no more than %d requests", t.next/2)
		}
		t.frames = append(appendHeader(t.frames, len(t.block), http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, t.next), t.block...)
		t.block = t.again
		t.next += 2
	}
	_, err := t.Conn.Write(t.frames)
	return len(b), err
}

func appendHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags)), stream)
}

// Read waits for at least one answer.
func (t *translated) Read(b []byte) (int, error) {
	if t.given == len(t.out) {
		t.out, t.given = t.out[:0], 0
	}
	for len(t.out) == 0 {
		if err := t.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, t.out[t.given:])
	t.given += n
	return n, nil
}

// fill reads, and takes the frames that are whole.
func (t *translated) fill() error {
	n, err := t.Conn.Read(t.in[t.has:])
	if n == 0 && err != nil {
		return err
	}
	t.has += n
	used := 0
	for t.has-used >= frameHeader {
		b := t.in[used:t.has]
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if length > frameMax {
			return fmt.Errorf("%w: a frame of %d bytes", errMalformed, length)
		}
		if len(b) < frameHeader+length {
			break
		}
		if err := t.take(http2.FrameType(b[3]), http2.Flags(b[4]), binary.BigEndian.Uint32(b[5:])&(1<<31-1), b[frameHeader:frameHeader+length]); err != nil {
			return err
		}
		used += frameHeader + length
	}
	t.has = copy(t.in, t.in[used:t.has])
	return nil
}

// take takes a frame. Those that nodes do not send are malformed.
func (t *translated) take(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) error {
	switch kind {
	case http2.FrameHeaders, http2.FrameData:
		return t.add(kind, flags, stream, payload)
	case http2.FrameSettings:
		if flags.Has(http2.FlagSettingsAck) {
			return nil
		}
		_, err := t.Conn.Write(appendHeader(nil, 0, kind, http2.FlagSettingsAck, 0))
		return err
	case http2.FramePing:
		if flags.Has(http2.FlagPingAck) {
			return nil
		}
		_, err := t.Conn.Write(append(appendHeader(nil, len(payload), kind, http2.FlagPingAck, 0), payload...))
		return err
	case http2.FrameRSTStream:
		return fmt.Errorf("the node resets stream %d with code % x", stream, payload)
	case http2.FrameGoAway:
		if len(payload) < 8 || binary.BigEndian.Uint32(payload[4:]) != 0 {
			return fmt.Errorf("the node sends GOAWAY % x", payload)
		}
		t.leaving = true
		return nil
	case http2.FrameWindowUpdate:
		return nil
	}
	return fmt.Errorf("%w: a frame %v", errMalformed, kind)
}

// add adds to the answer of a stream, and moves those that are whole to out, in the order of the requests.
func (t *translated) add(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) (err error) {
	if stream%2 == 0 || stream < t.oldest || stream >= t.next || t.answer(stream).done || flags.Has(http2.FlagDataPadded) {
		return fmt.Errorf("%w: a frame %v with flags %#x on stream %d", errMalformed, kind, flags, stream)
	}
	r := t.answer(stream)
	if kind == http2.FrameData {
		err = t.addBody(r, payload)
	} else if err = t.decode(flags, payload); len(t.head.head) > 0 { // not trailers
		r.head, r.length = append(r.head[:0], t.head.head...), t.head.length
	}
	r.done = flags.Has(http2.FlagDataEndStream)
	for err == nil && t.oldest < t.next && t.answer(t.oldest).done {
		err = t.emit(t.answer(t.oldest))
	}
	return err
}

// answer returns where the answer of a stream is, which has a request under way.
func (t *translated) answer(stream uint32) *streamed {
	return &t.answers[int(stream/2)%len(t.answers)]
}

// addBody adds to the body of an answer, and lets the node send more.
func (t *translated) addBody(r *streamed, b []byte) (err error) {
	if r.body = append(r.body, b...); len(r.body) > answerMax {
		return fmt.Errorf("%w: more than %d bytes", errMalformed, answerMax)
	}
	if t.received += len(b); t.received >= windowGrowth/2 {
		_, err = t.Conn.Write(binary.BigEndian.AppendUint32(appendHeader(nil, 4, http2.FrameWindowUpdate, 0, 0), uint32(t.received)))
		t.received = 0
	}
	return err
}

// emit appends the oldest answer to out.
func (t *translated) emit(r *streamed) error {
	if len(r.head) == 0 || r.length >= 0 && r.length != len(r.body) {
		return fmt.Errorf("%w: an answer without a status, or with %d bytes instead of %d", errMalformed, len(r.body), r.length)
	}
	t.out = strconv.AppendInt(append(append(t.out, r.head...), "Content-Length: "...), int64(len(r.body)), 10)
	if t.oldest += 2; t.leaving && t.oldest == t.next {
		t.out = append(t.out, "\r\nConnection: close"...)
	}
	t.out = append(append(t.out, "\r\n\r\n"...), r.body...)
	r.head, r.body, r.done = r.head[:0], r.body[:0], false
	return nil
}

// decode reads a block of fields into head. One that consists of indexes means the same until another one changes the table.
func (t *translated) decode(flags http2.Flags, block []byte) error {
	if !flags.Has(http2.FlagHeadersEndHeaders) || flags.Has(http2.FlagHeadersPriority) {
		return fmt.Errorf("%w: HEADERS with flags %#x", errMalformed, flags)
	}
	if len(block) > 0 && bytes.Equal(block, t.memo) {
		return nil
	}
	t.head.head, t.head.length, t.memo = t.head.head[:0], -1, t.memo[:0]
	if _, err := t.decoder.Write(block); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	if indexed(block) {
		t.memo = append(t.memo, block...)
	}
	if err := t.decoder.Close(); err != nil || len(t.head.head) > answerMax {
		return fmt.Errorf("%w: fields of %d bytes, %v", errMalformed, len(t.head.head), err)
	}
	return nil
}

// indexed reports whether a block consists of indexes of one byte each.
func indexed(block []byte) bool {
	for _, b := range block {
		if b < 0x80 || b == 0xff {
			return false
		}
	}
	return true
}

// field takes what matters of a header.
func (t *translated) field(f hpack.HeaderField) {
	switch {
	case f.Name == ":status":
		t.head.head = append(append(append(t.head.head, "HTTP/1.1 "...), f.Value...), " \r\n"...)
	case f.Name == "content-length":
		if n, err := strconv.Atoi(f.Value); err == nil {
			t.head.length = n
		}
	case strings.EqualFold(f.Name, leaderHeader):
		t.head.head = append(append(append(append(t.head.head, leaderHeader...), ": "...), f.Value...), "\r\n"...)
	}
}
