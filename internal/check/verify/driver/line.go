package driver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// quoteMax is how much of a line an error quotes, in bytes.
const quoteMax = 200

// lineBuffer is the size of the buffers between processes, in bytes.
const lineBuffer = 64 << 10

// readLine returns the next line without its end, valid until the next call. It returns io.EOF at the end of the
// input, also behind a line that has no end.
func readLine(r *bufio.Reader, long *[]byte) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	*long = append((*long)[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(*long) > LineMax {
			return nil, fmt.Errorf("a line of more than %d bytes, which begins with %.*q", LineMax, quoteMax, *long)
		}
		line, err = r.ReadSlice('\n')
		*long = append(*long, line...)
	}
	switch {
	case err == nil:
		return (*long)[:len(*long)-1], nil
	case errors.Is(err, io.EOF) && len(*long) > 0:
		return nil, fmt.Errorf("%.*q without the end of a line: %w", quoteMax, *long, io.EOF)
	}
	return nil, err
}
