package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/isotone/isotone"
)

// Source is a named source of a document. [Parse] and [Func] make it.
type Source struct {
	name string
	// open makes the loader. It does not connect to anything.
	open func() loader
}

// Name returns the name of the document.
func (s Source) Name() string { return s.name }

// loader loads one document. Its methods are called by one goroutine.
type loader interface {
	// load returns the whole value, which the caller owns from then on, or an error
	// if it has more than sizeMax bytes; then it has read little more than that. It
	// returns soon after ctx ends.
	load(ctx context.Context, sizeMax int) ([]byte, error)
	// close lets go of connections.
	close()
	// String names the source for people, without secrets.
	String() string
}

// Func returns a source that is a function. It returns JSON that it does not change
// afterwards, and it returns soon after ctx ends. Its name may be one that [Parse]
// reserves.
func Func(name string, load func(ctx context.Context) ([]byte, error)) Source {
	if load == nil {
		return Source{name: name}
	}
	return Source{name, func() loader { return function(load) }}
}

type function func(ctx context.Context) ([]byte, error)

func (f function) load(ctx context.Context, _ int) ([]byte, error) { return f(ctx) }
func (function) close()                                            {}
func (function) String() string                                    { return "function" }

// errTooLarge is a source beyond the limit.
func errTooLarge(sizeMax int) error {
	return isotone.Errorf(isotone.CodeInvalidArgument, "more than %d bytes", sizeMax)
}

// readAll reads r to its end, and at most one byte more than sizeMax. The hint is how
// much it probably has.
func readAll(r io.Reader, hint int64, sizeMax int) ([]byte, error) {
	if hint > int64(sizeMax) {
		return nil, errTooLarge(sizeMax)
	}
	// One byte more than there is, so that the end is seen without growing.
	b := make([]byte, 0, max(hint, 511)+1)
	for len(b) <= sizeMax {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):min(cap(b), sizeMax+1)])
		b = b[:len(b)+n]
		if err == io.EOF && len(b) <= sizeMax {
			return b, nil
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
	}
	return nil, errTooLarge(sizeMax)
}

// codeOf returns the code under which a failed load is counted.
func codeOf(err error) isotone.Code {
	var e *isotone.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, os.ErrNotExist):
		return isotone.CodeNotFound
	case errors.Is(err, os.ErrPermission):
		return isotone.CodeUnauthorized
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return isotone.CodeDeadlineExceeded
	}
	return isotone.CodeInternal
}

// file is a path.
type file string

func (f file) String() string { return "file:" + string(f) }

func (file) close() {}

// load reads the file. It looks at the path each time, so whoever replaces the file
// by a rename is never seen half way.
func (f file) load(ctx context.Context, sizeMax int) ([]byte, error) {
	// Without O_NONBLOCK a pipe would hold this goroutine until somebody writes.
	open, err := os.OpenFile(string(f), os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, plainError(err)
	}
	defer func() { _ = open.Close() }()
	info, err := open.Stat()
	if err != nil {
		return nil, plainError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "not a regular file but %s", describe(info.Mode()))
	}
	return readAll(untilDone{ctx, open}, info.Size(), sizeMax)
}

func describe(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&os.ModeNamedPipe != 0:
		return "a pipe"
	}
	return m.Type().String()
}

// plainError leaves out the path, which stands beside it already.
func plainError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Op, path.Err)
	}
	return err
}

// untilDone ends reading with a context, between two reads.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// nameRule is isName for people.
const nameRule = "1 to 64 lower-case letters, digits and hyphens"

// isName reports whether a document may have that name: it stands in a URL and in
// metrics as it is.
func isName(name string) bool {
	for _, c := range []byte(name) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 64
}
