package stats

import (
	"context"
	"io"
)

// patient reads from a source that may pause for as long as it likes, as the end of a log
// does that is being written: when ctx ends, Read returns. What the source has then is left
// to a goroutine that ends with the source's Read.
type patient struct {
	ctx context.Context
	in  io.Reader

	buf  []byte // belongs to the goroutine while it reads
	rest []byte // of buf, to be given out
	err  error
}

// Read returns what the source has.
func (p *patient) Read(b []byte) (int, error) {
	if len(p.rest) == 0 && p.err == nil {
		if p.buf == nil {
			p.buf = make([]byte, readBytes)
		}
		type result struct {
			n   int
			err error
		}
		read, buf := make(chan result, 1), p.buf
		go func() {
			n, err := p.in.Read(buf)
			read <- result{n, err}
		}()
		select {
		case got := <-read:
			p.rest, p.err = buf[:got.n], got.err
		case <-p.ctx.Done():
			p.err = p.ctx.Err()
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	if len(p.rest) == 0 {
		return n, p.err
	}
	return n, nil
}

// readBytes is how much is read at once.
const readBytes = 64 << 10
