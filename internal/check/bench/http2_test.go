package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// scripted is a connection on which the other side has sent everything at once.
type scripted struct {
	net.Conn
	sent bytes.Buffer
	come io.Reader
}

func (c *scripted) Write(b []byte) (int, error) { return c.sent.Write(b) }
func (c *scripted) Read(b []byte) (int, error)  { return c.come.Read(b) }

// fakeServer writes what a node sends.
type fakeServer struct {
	*http2.Framer
	fields  bytes.Buffer
	encoder *hpack.Encoder
}

func newFakeServer(to io.Writer) *fakeServer {
	s := &fakeServer{Framer: http2.NewFramer(to, nil)}
	s.encoder = hpack.NewEncoder(&s.fields)
	_ = s.WriteSettings()
	return s
}

// head begins an answer; fields are pairs.
func (s *fakeServer) head(stream uint32, fields ...string) {
	s.fields.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: s.fields.Bytes(), EndHeaders: true})
}

// answer is an answer of 16 bytes.
func (s *fakeServer) answer(stream uint32, body string) {
	s.head(stream, ":status", "200", "content-length", "16", "date", "today")
	_ = s.WriteData(stream, true, []byte(strings.Repeat(body, 16)))
}

// translateScript sends three requests, and returns what is read after the node has sent what script says.
func translateScript(t testing.TB, script func(*fakeServer)) (string, error) {
	t.Helper()
	var come bytes.Buffer
	script(newFakeServer(&come))
	c, err := translate(&scripted{come: &come}, 10, 3, []hpack.HeaderField{{Name: ":method", Value: "GET"}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write(make([]byte, 30)); n != 30 || err != nil {
		t.Fatal(n, err)
	}
	got, err := io.ReadAll(c)
	return string(got), err
}

func TestHTTP2_AnswersComeInTheOrderOfTheRequests(t *testing.T) {
	want := func(close string, bodies ...string) (all string) {
		for i, body := range bodies {
			if all += "HTTP/1.1 200 \r\nContent-Length: 16\r\n"; i == len(bodies)-1 {
				all += close
			}
			all += "\r\n" + strings.Repeat(body, 16)
		}
		return all
	}
	for name, script := range map[string]func(*fakeServer){
		"in order": func(s *fakeServer) { s.answer(1, "a"); s.answer(3, "b"); s.answer(5, "c") },
		"reversed": func(s *fakeServer) { s.answer(5, "c"); s.answer(3, "b"); s.answer(1, "a") },
		"interleaved": func(s *fakeServer) {
			s.head(3, ":status", "200")
			s.answer(1, "a")
			s.head(5, ":status", "200", "content-length", "16")
			_ = s.WriteData(3, false, []byte("bbbbbbbb"))
			_ = s.WriteData(5, true, bytes.Repeat([]byte("c"), 16))
			_ = s.WriteData(3, true, []byte("bbbbbbbb"))
		},
		"with trailers": func(s *fakeServer) {
			s.answer(1, "a")
			s.head(3, ":status", "200")
			_ = s.WriteData(3, false, bytes.Repeat([]byte("b"), 16))
			s.fields.Reset()
			_ = s.encoder.WriteField(hpack.HeaderField{Name: "x", Value: "y"})
			_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: s.fields.Bytes(), EndHeaders: true, EndStream: true})
			s.answer(5, "c")
		},
	} {
		if got, err := translateScript(t, script); got != want("", "a", "b", "c") || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	got, err := translateScript(t, func(s *fakeServer) {
		s.answer(1, "a")
		_ = s.WriteGoAway(5, http2.ErrCodeNo, nil)
		s.answer(3, "b")
		s.answer(5, "c")
	})
	if got != want("Connection: close\r\n", "a", "b", "c") || err != nil {
		t.Errorf("the node leaves: %q, %v", got, err)
	}
}

func TestHTTP2_MalformedAnswersAreErrors(t *testing.T) {
	for name, script := range map[string]func(*fakeServer){
		"no request":     func(s *fakeServer) { s.answer(7, "a") },
		"an even stream": func(s *fakeServer) { s.answer(2, "a") },
		"twice":          func(s *fakeServer) { s.answer(1, "a"); s.answer(1, "b") },
		"no status":      func(s *fakeServer) { s.head(1, "x", "y"); _ = s.WriteData(1, true, nil) },
		"too short": func(s *fakeServer) {
			s.head(1, ":status", "200", "content-length", "2")
			_ = s.WriteData(1, true, []byte("a"))
		},
		"a wrong block": func(s *fakeServer) {
			_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff}, EndHeaders: true})
		},
		"a pushed request": func(s *fakeServer) {
			_ = s.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		},
		"too long": func(s *fakeServer) {
			s.head(1, ":status", "200")
			for range answerMax/frameMax + 1 {
				_ = s.WriteData(1, false, make([]byte, frameMax))
			}
		},
	} {
		if got, err := translateScript(t, script); !errors.Is(err, errMalformed) || got != "" && name != "twice" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, script := range map[string]func(*fakeServer){
		"reset": func(s *fakeServer) { _ = s.WriteRSTStream(3, http2.ErrCodeRefusedStream) },
		"calm":  func(s *fakeServer) { _ = s.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) },
	} {
		if _, err := translateScript(t, script); err == nil || errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzHTTP2 gives what a node may send to a connection with three requests: at most three answers come of it.
func FuzzHTTP2(f *testing.F) {
	for _, script := range []func(*fakeServer){
		func(s *fakeServer) { s.answer(3, "b"); s.answer(1, "a"); s.answer(5, "c") },
		func(s *fakeServer) {
			_ = s.WritePing(false, [8]byte{})
			_ = s.WriteGoAway(1, http2.ErrCodeNo, nil)
			s.answer(1, "a")
		},
		func(s *fakeServer) { s.head(1, ":status", "200", "isotone-leader", "a:1"); _ = s.WriteRSTStream(1, 2) },
	} {
		var seed bytes.Buffer
		script(newFakeServer(&seed))
		f.Add(seed.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := translate(&scripted{come: bytes.NewReader(b)}, 1, 3, []hpack.HeaderField{{Name: ":method", Value: "GET"}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("abc"))
		_, err = io.Copy(io.Discard, struct{ io.Reader }{c})
		if c.oldest > 7 || c.oldest%2 == 0 {
			t.Fatal(fmt.Sprint("stream ", c.oldest, ", ", err))
		}
	})
}
