package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// The pipe carries one request at a time, a line of JSON, and its reply: a line of JSON, and then as
// many bytes as it says. The program ends with its input.
const (
	// version is that of the pipe. A program of another version refuses requests.
	version = 1
	// requestBytesMax bounds a request: a URL, which JSON may make six times as long.
	requestBytesMax = 512 << 10
	// replyLineMax bounds the line of a reply, and messageBytesMax the message in it.
	replyLineMax    = 8 << 10
	messageBytesMax = 1 << 10
)

// request asks for a document.
type request struct {
	Version   int    `json:"version"`
	URL       string `json:"url"` // the same in all requests to one process
	SizeMax   int    `json:"size_max"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// reply is the answer. With an empty code, Size bytes follow, or nothing has changed since the last reply of
// this process without a code.
type reply struct {
	Code      isotone.Code `json:"code,omitempty"`
	Message   string       `json:"message,omitempty"`
	Unchanged bool         `json:"unchanged,omitempty"`
	Size      int          `json:"size,omitempty"`
}

// Loader loads the document of one URL. Its methods are called by one goroutine.
type Loader interface {
	// Load returns the document, at most sizeMax bytes, or changed=false if it is the one that the
	// last call without an error returned. It returns soon after ctx ends. Its error should be an
	// [isotone.Error]; users and passwords of the URL are removed from it.
	Load(ctx context.Context, sizeMax int) (document []byte, changed bool, err error)
	// Close lets go of connections.
	Close()
}

// Serve answers the requests of a node until in ends, which is no error. Open makes the loader of the
// node's URL; it connects to nothing.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func(*URL) (Loader, error)) error {
	s := server{open: open}
	defer s.close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, requestBytesMax)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("a request is not JSON: %w", err)
		}
		document, head := s.answer(ctx, r)
		line, err := json.Marshal(head)
		if err != nil {
			panic("store: " + err.Error()) // a reply has no value that JSON cannot have
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
		if _, err := out.Write(document); err != nil {
			return err
		}
	}
	return lines.Err()
}

// server is the state between the requests of a node.
type server struct {
	open   func(*URL) (Loader, error)
	url    *URL
	loader Loader
}

func (s *server) close() {
	if s.loader != nil {
		s.loader.Close()
	}
}

func (s *server) answer(ctx context.Context, r request) ([]byte, reply) {
	document, changed, err := s.load(ctx, r)
	switch {
	case err != nil:
		return nil, s.failure(err)
	case !changed:
		return nil, reply{Unchanged: true}
	}
	return document, reply{Size: len(document)}
}

func (s *server) load(ctx context.Context, r request) (document []byte, changed bool, err error) {
	if r.Version != version {
		return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "%s and the node are of different versions; install both of one version", Program)
	}
	if s.loader == nil {
		if s.url, err = Parse(r.URL); err != nil {
			return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "%s", err)
		}
		if s.loader, err = s.open(s.url); err != nil {
			return nil, false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.TimeoutMS)*time.Millisecond)
	defer cancel()
	document, changed, err = s.loader.Load(ctx, r.SizeMax)
	if err == nil && len(document) > r.SizeMax {
		return nil, false, isotone.Errorf(isotone.CodeInternal, "the loader does not keep to the limit")
	}
	return document, changed, err
}

// failure returns the reply for an error.
func (s *server) failure(err error) reply {
	r := reply{Code: isotone.CodeInternal, Message: err.Error()}
	var coded *isotone.Error
	switch {
	case errors.As(err, &coded):
		r.Code = coded.Code
		r.Message = strings.TrimPrefix(r.Message, string(coded.Code)+": ")
	case errors.Is(err, context.DeadlineExceeded):
		r.Code, r.Message = isotone.CodeDeadlineExceeded, "the database did not answer in time"
	}
	if s.url != nil {
		r.Message = s.url.Redact(r.Message)
	}
	r.Message = strings.ToValidUTF8(r.Message[:min(len(r.Message), messageBytesMax)], "")
	return r
}

// errGarbled is a program that is not isotone-live.
var errGarbled = isotone.Errorf(isotone.CodeInternal, "%s did not answer as it should; is it another program of that name?", Program)

// ask sends a request and reads the reply. Unless the error is a [isotone.Error] of the loader, the
// pipe is of no use afterwards: usable is false.
func ask(w io.Writer, from *bufio.Reader, r request) (document []byte, changed, usable bool, err error) {
	r.Version = version
	line, err := json.Marshal(r)
	if err != nil {
		return nil, false, true, isotone.Errorf(isotone.CodeInvalidArgument, "the URL is no text")
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return nil, false, false, err
	}
	line, err = from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, false, false, errGarbled
	}
	if err != nil {
		return nil, false, false, err
	}
	var head reply
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&head) != nil || head.Size < 0 || head.Size > r.SizeMax || head.Size > 0 && (head.Code != "" || head.Unchanged) {
		return nil, false, false, errGarbled
	}
	if head.Code != "" {
		return nil, false, true, isotone.Errorf(head.Code, "%s", head.Message)
	}
	if head.Unchanged {
		return nil, false, true, nil
	}
	document = make([]byte, head.Size)
	if _, err := io.ReadFull(from, document); err != nil {
		return nil, false, false, err
	}
	return document, true, true, nil
}
