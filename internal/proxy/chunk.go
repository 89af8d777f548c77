package proxy

import (
	"strconv"

	"github.com/isotone/isotone/internal/front/head"
)

// chunks scans the framing of a chunked body (RFC 9112 §7.1) as its bytes pass. It finds the
// end, and refuses what could be read in another way. The zero value is at the start of a body.
type chunks struct {
	// trailers allows fields after the last chunk. They are not parsed.
	trailers bool

	state chunkState
	left  uint64 // of the chunk's data
	line  int    // bytes of the line so far; in the trailers, of all lines
	blank bool   // the current line of the trailers is empty so far
}

type chunkState uint8

const (
	chunkSize      chunkState = iota // in the digits
	chunkExtension                   // after a semicolon
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer
	chunkTrailerLF
	chunkDone
)

const (
	// chunkDigitsMax allows chunks of up to 4 GiB less one byte.
	chunkDigitsMax = 8
	// chunkLineMax bounds the line before a chunk, in bytes. Extensions are hardly used.
	chunkLineMax = 256
	// trailerBytesMax bounds all trailer fields.
	trailerBytesMax = 4 << 10
)

var errChunk = refuse("the chunks of the body are malformed")

// done reports whether the body has ended.
func (c *chunks) done() bool { return c.state == chunkDone }

// scan scans b and returns how many of its bytes belong to the body: all of them, unless the
// body ends before.
func (c *chunks) scan(b []byte) (int, *httpError) {
	for at := 0; at < len(b); at++ {
		if c.state == chunkData {
			n := min(uint64(len(b)-at), c.left)
			c.left -= n
			if at += int(n); c.left > 0 {
				return at, nil
			}
			c.state = chunkDataCR
			if at == len(b) {
				return at, nil
			}
		}
		if !c.step(b[at]) {
			return at, errChunk
		}
		if c.state == chunkDone {
			return at + 1, nil
		}
	}
	return len(b), nil
}

// step scans one byte that is not data, and reports whether it is allowed.
func (c *chunks) step(b byte) bool {
	switch c.state {
	case chunkSize:
		switch {
		case head.Hex.Has(b):
			c.left = c.left<<4 | uint64(hexValue(b))
			c.line++
			return c.line <= chunkDigitsMax
		case c.line == 0:
			return false
		case b == ';':
			c.state = chunkExtension
			return true
		}
		c.state = chunkSizeLF
		return b == '\r'
	case chunkExtension:
		if b == '\r' {
			c.state = chunkSizeLF
			return true
		}
		c.line++
		return head.Value.Has(b) && c.line <= chunkLineMax
	case chunkSizeLF:
		c.line = 0
		if c.state = chunkData; c.left == 0 {
			c.state, c.blank = chunkTrailer, true
		}
		return b == '\n'
	case chunkDataCR:
		c.state = chunkDataLF
		return b == '\r'
	case chunkDataLF:
		c.state = chunkSize
		return b == '\n'
	case chunkTrailer:
		if b == '\r' {
			c.state = chunkTrailerLF
			return true
		}
		c.line++
		c.blank = false
		return c.trailers && head.Value.Has(b) && c.line <= trailerBytesMax
	case chunkTrailerLF:
		if c.state = chunkTrailer; c.blank {
			c.state = chunkDone
		}
		c.blank = true
		return b == '\n'
	}
	return false
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// appendChunk appends data, which is not empty, as one chunk.
func appendChunk(out, data []byte) []byte {
	out = strconv.AppendUint(out, uint64(len(data)), 16)
	out = append(out, "\r\n"...)
	out = append(out, data...)
	return append(out, "\r\n"...)
}

// lastChunk ends a chunked body, without trailers.
const lastChunk = "0\r\n\r\n"
