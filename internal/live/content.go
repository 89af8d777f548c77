package live

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// content is one version of a document, encoded. It never changes.
type content struct {
	version uint64 // 1, 2, …; 0 stands for none
	raw     []byte
	zipped  []byte // nil: it would not be smaller
	// id is the hash of raw. It is the same on every node that has the same content,
	// so that a client may go on with another.
	id        string
	tag       string        // the entity tag of raw
	zippedTag string        // and that of zipped
	next      chan struct{} // closed when there is another content

	encode sync.Once
	event  []byte
}

func newContent(version uint64, raw []byte) *content {
	c := &content{version: version, raw: raw, zipped: zip(raw), id: hash(raw), next: make(chan struct{})}
	c.tag = `"` + c.id + `"`
	if c.zipped != nil {
		// A hash of the compressed bytes: another build may compress differently, and a
		// strong tag identifies bytes (RFC 9110 §8.8.3).
		c.zippedTag = `"` + hash(c.zipped) + `"`
	}
	return c
}

// hash returns 128 bits of SHA-256: no collision is feasible.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// zipBest is the size above which speed matters more than compression: at the default level
// a document of 8 MiB takes more than a tenth of a second of one core, each second.
const zipBest = 1 << 20

// Compressors, of some 800 KB and 1.2 MB, to be used again.
var (
	bestZippers = sync.Pool{New: func() any { return newZipper(gzip.DefaultCompression) }}
	fastZippers = sync.Pool{New: func() any { return newZipper(gzip.BestSpeed) }}
)

func newZipper(level int) *gzip.Writer {
	w, err := gzip.NewWriterLevel(nil, level)
	if err != nil {
		panic("live: " + err.Error()) // there is such a level
	}
	return w
}

// zip returns b compressed, or nil if that is not smaller.
func zip(b []byte) []byte {
	zippers := &bestZippers
	if len(b) > zipBest {
		zippers = &fastZippers
	}
	w := zippers.Get().(*gzip.Writer)
	defer zippers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(b) // a Buffer does not fail
	_ = w.Close()
	if out.Len() >= len(b) {
		return nil
	}
	return bytes.Clone(out.Bytes())
}

// sse returns the server-sent event, which is made when the first reader needs it and
// shared by all.
func (c *content) sse() []byte {
	c.encode.Do(func() { c.event = appendEvent(nil, c.id, c.raw) })
	return c.event
}

// appendEvent appends an event. Its data has the lines of data, whichever of the three
// ends of line they have; a client puts them together again with "\n". In JSON
// that is white space, as no string has a bare end of line.
func appendEvent(b []byte, id string, data []byte) []byte {
	b = append(b, "id: "...)
	b = append(b, id...)
	b = append(b, '\n')
	for more := true; more; {
		line := data
		end := bytes.IndexAny(data, "\r\n")
		if more = end >= 0; more {
			line = data[:end]
			skip := 1
			if bytes.HasPrefix(data[end:], []byte("\r\n")) {
				skip = 2
			}
			data = data[end+skip:]
		}
		b = append(b, "data: "...)
		b = append(b, line...)
		b = append(b, '\n')
	}
	return append(b, '\n')
}
