package stats

import (
	"context"
	"io"
)

// interruptible reads from a source that may block forever, like a log that is still being
// written. When ctx ends, Read returns; the goroutine that reads ends with the source's Read.
type interruptible struct {
	ctx context.Context
	in  io.Reader

	buf  []byte // belongs to the goroutine while it reads
	rest []byte // of buf, not returned yet
	err  error
}

// Read reads from the source.
func (r *interruptible) Read(b []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil {
		if r.buf == nil {
			r.buf = make([]byte, readBytes)
		}
		type result struct {
			n   int
			err error
		}
		read, buf := make(chan result, 1), r.buf
		go func() {
			n, err := r.in.Read(buf)
			read <- result{n, err}
		}()
		select {
		case got := <-read:
			r.rest, r.err = buf[:got.n], got.err
		case <-r.ctx.Done():
			r.err = r.ctx.Err()
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	if len(r.rest) == 0 {
		return n, r.err
	}
	return n, nil
}

// readBytes is the size of one read.
const readBytes = 64 << 10
