package web_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/web"
)

// The tests with libraries of gRPC are in interop/grpc. These speak for themselves.

// framed returns messages as they are sent.
func framed(messages ...[]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = append(binary.BigEndian.AppendUint32(append(b, 0), uint32(len(m))), m...)
	}
	return b
}

// asked returns a TimestampsStreamRequest.
func asked(id, count uint64) []byte {
	get := binary.AppendUvarint([]byte{0x08}, count)
	return append(append(binary.AppendUvarint([]byte{0x08}, id), 0x12, byte(len(get))), get...)
}

// post calls a method.
func (c *client) post(t *testing.T, path, contentType string, body io.Reader) *answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.scheme+"://"+c.addr+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	a := &answer{Response: response}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return a
}

// status is in the trailers, or, if there is no message, in the head.
func (a *answer) status() (code string, inHead bool) {
	if code := a.Header.Get("Grpc-Status"); code != "" {
		return code, true
	}
	return a.Trailer.Get("Grpc-Status"), false
}

func TestGRPC_AnswersOverEachVersionThatHasTrailers(t *testing.T) {
	s := start(t)
	for _, protocol := range []string{"h2c", "h2", "h3"} {
		a := s.client(t, protocol).post(t, grpc.PathTimestampsGet, grpc.ContentType, bytes.NewReader(framed(nil)))
		code, inHead := a.status()
		if a.StatusCode != 200 || code != "0" || inHead || a.Header.Get("Content-Type") != grpc.ContentType || len(a.body) != 5+18+2 {
			t.Errorf("%s: %d, %q, %v %v, %x", protocol, a.StatusCode, code, a.Header, a.Trailer, a.body)
		}
		s.backend.fail(&isotone.Error{Code: isotone.CodeNotLeader, Leader: "127.0.0.1:8081"})
		a = s.client(t, protocol).post(t, grpc.PathTimestampsGet, grpc.ContentType, bytes.NewReader(framed(nil)))
		if code, inHead := a.status(); a.StatusCode != 200 || code != "14" || !inHead || len(a.body) != 0 {
			t.Errorf("%s: %d, %q, %v %v, %x", protocol, a.StatusCode, code, a.Header, a.Trailer, a.body)
		}
		s.backend.fail(nil)
	}
	// Streams of timestamps are for the loop.
	a := s.client(t, "h3").post(t, grpc.PathTimestampsStream, grpc.ContentType, bytes.NewReader(framed(asked(1, 1))))
	if code, inHead := a.status(); a.StatusCode != 200 || code != "12" || !inHead {
		t.Errorf("a stream over h3: %d, %q, %v", a.StatusCode, code, a.Header)
	}
}

func TestGRPC_RefusesWhatIsNone(t *testing.T) {
	s := start(t)
	for _, test := range []struct {
		protocol, path, contentType string
		status                      int
		grpc                        string
	}{
		{"http1", grpc.PathTimestampsGet, grpc.ContentType, 505, ""},
		{"h2c", grpc.PathTimestampsGet, "application/json", 415, ""},
		{"h2c", grpc.PathTimestampsGet, "application/grpc-web+proto", 415, ""},
		{"h2c", "/isotone.v1.Timestamps/Take", grpc.ContentType, 200, "12"},
		{"h2c", "/timestamp", grpc.ContentType, 405, ""},
		{"h2c", grpc.PathIDsGet, grpc.ContentType, 200, "12"}, // there are none here
		{"h2c", grpc.PathIntervalGet, grpc.ContentType, 200, "12"},
	} {
		a := s.client(t, test.protocol).post(t, test.path, test.contentType, bytes.NewReader(framed(nil)))
		if code, _ := a.status(); a.StatusCode != test.status || code != test.grpc {
			t.Errorf("%v: %d, %q; %s", test, a.StatusCode, code, a.body)
		}
	}
	a := s.client(t, "h2c").get(t, grpc.PathTimestampsGet)
	if a.StatusCode != 405 || a.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %d, %v", a.StatusCode, a.Header)
	}
	for name, body := range map[string]string{"nothing": "", "half a message": "\x00\x00\x00\x00\x09x", "two messages": string(framed(nil, nil)), "no protobuf": string(framed([]byte{0xff}))} {
		a := s.client(t, "h2c").post(t, grpc.PathTimestampsGet, grpc.ContentType, strings.NewReader(body))
		if code, _ := a.status(); a.StatusCode != 200 || code != "3" {
			t.Errorf("%s: %d, %q", name, a.StatusCode, code)
		}
	}
	if n := s.backend.submitted.Load(); n != 0 {
		t.Errorf("%d batches were submitted", n)
	}
}

// TestGRPC_RefusesStrangersAsACallIsRefused: in the form without a message, with status 200; and a flood ends.
func TestGRPC_RefusesStrangersAsACallIsRefused(t *testing.T) {
	s, _ := guarded(t)
	c := s.client(t, "h2c")
	last := func() bool {
		a := c.post(t, grpc.PathTimestampsGet, grpc.ContentType, bytes.NewReader(framed(nil)))
		if code, inHead := a.status(); a.StatusCode != 200 || code != "16" || !inHead || a.Header.Get("Grpc-Status-Details-Bin") == "" {
			t.Fatalf("%d, %v", a.StatusCode, a.Header)
		}
		return false
	}
	for range refusedMost {
		last()
	}
	await.Until(t, "the connection ends", func() bool {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.addr+grpc.PathTimestampsGet, bytes.NewReader(framed(nil)))
		r.Header.Set("Content-Type", grpc.ContentType)
		a, err := c.Do(r)
		if err == nil {
			_ = a.Body.Close()
		}
		return err != nil
	})
}

// TestGRPC_AStreamSharesRounds: what comes together is submitted together, each request is observed, and so many wait at most.
func TestGRPC_AStreamSharesRounds(t *testing.T) {
	observed := make(chan string, 1000)
	s := start(t, func(c *web.Config) {
		c.Observe = func(protocol, code string, _ time.Duration) { observed <- protocol + " " + code }
	})
	var requests [][]byte
	for id := range uint64(300) {
		requests = append(requests, asked(id, id%5)) // a count of 0 is refused
	}
	a := s.client(t, "h2c").post(t, grpc.PathTimestampsStream, grpc.ContentType, bytes.NewReader(framed(requests...)))
	if code, inHead := a.status(); code != "0" || inHead {
		t.Errorf("%q, %v, %v", code, a.Header, a.Trailer)
	}
	rest, got, failed := a.body, uint64(0), 0
	for message := []byte(nil); len(rest) > 0; got++ {
		n := binary.BigEndian.Uint32(rest[1:])
		message, rest = rest[5:5+n], rest[5+n:]
		id := uint64(0)
		if message[0] == 0x08 {
			id, _ = binary.Uvarint(message[1:])
		}
		if id != got {
			t.Fatalf("answer %d is that of request %d", got, id)
		}
		if !slices.Contains([]byte{0x12, 0x1a}, message[0]) {
			message = message[1+len(binary.AppendUvarint(nil, id)):]
		}
		if message[0] == 0x1a {
			failed++
		}
	}
	if got != 300 || failed != 60 {
		t.Errorf("%d answers, %d of them errors", got, failed)
	}
	if n := s.backend.submitted.Load(); n > 30 {
		t.Errorf("%d batches for 300 requests", n)
	}
	codes := map[string]int{}
	for range 300 {
		codes[<-observed]++
	}
	if codes["grpc ok"] != 240 || codes["grpc invalid_argument"] != 60 || len(observed) > 0 {
		t.Errorf("%v, and %d more", codes, len(observed))
	}
}

// TestGRPC_AStreamEndsWithItsClient, although the backend has not answered.
func TestGRPC_AStreamEndsWithItsClient(t *testing.T) {
	ended := make(chan struct{}, 10)
	s := start(t, func(c *web.Config) {
		c.Wrap = func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r); ended <- struct{}{} })
		}
	})
	body, requests := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.h2[0].addr+grpc.PathTimestampsStream, body)
	r.Header.Set("Content-Type", grpc.ContentType)
	r.Header.Set("Grpc-Timeout", strconv.Itoa(int(patience/time.Second))+"S")
	s.backend.hold()
	defer s.backend.release()
	a, err := s.client(t, "h2c").Do(r) // the head comes before there is a request
	if err != nil {
		t.Fatal(err)
	}
	if _, err := requests.Write(framed(asked(1, 1))); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it waits", func() bool { return s.backend.submitted.Load() == 1 })
	_ = requests.CloseWithError(io.ErrUnexpectedEOF) // the client resets the stream
	<-ended
	_ = a.Body.Close()
}

// TestGRPC_AnIdleStreamEnds when the server stops, and with its deadline.
func TestGRPC_AnIdleStreamEnds(t *testing.T) {
	s := start(t)
	begin := func(path string, first []byte, timeout string) *http.Response {
		body, requests := io.Pipe()
		t.Cleanup(func() { _ = requests.Close() })
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.h2[0].addr+path, body)
		r.Header.Set("Content-Type", grpc.ContentType)
		r.Header.Set("Grpc-Timeout", timeout)
		go func() { _, _ = requests.Write(framed(first)) }()
		a, err := s.client(t, "h2c").Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	end := func(a *http.Response, want string) {
		t.Helper()
		if _, err := io.Copy(io.Discard, a.Body); err != nil || a.Trailer.Get("Grpc-Status")+a.Header.Get("Grpc-Status") != want {
			t.Errorf("%s: %v, %v, %v; want %s", a.Request.URL.Path, a.Header, a.Trailer, err, want)
		}
		_ = a.Body.Close()
	}
	streams := map[string][]byte{grpc.PathTimestampsStream: asked(1, 1), grpc.PathReflection: {0x3a, 0}, grpc.PathReflectionAlpha: {0x3a, 0}}
	var waiting []*http.Response
	for path, first := range streams {
		end(begin(path, first, "20m"), "4")
		waiting = append(waiting, begin(path, first, "1H"))
	}
	s.EndWaits()
	for _, a := range waiting {
		end(a, "14")
	}
}

// TestGRPC_AStreamGoesOnWhileTheListOfUsersChanges: the loop looks up whom it counts for.
func TestGRPC_AStreamGoesOnWhileTheListOfUsersChanges(t *testing.T) {
	users, everybody := rig.NewUserList(t, `{"users": {}}`), access.Timestamps
	control, err := access.Open(access.Config{File: users.File, Anonymous: &everybody})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *web.Config) { c.Access = control })
	body, requests := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.h2[0].addr+grpc.PathTimestampsStream, body)
	r.Header.Set("Content-Type", grpc.ContentType)
	a, err := s.client(t, "h2c").Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	const sent = 2000
	go func() {
		defer func() { _ = requests.Close() }()
		for id := range uint64(sent) {
			if id%50 == 0 {
				users.Write(fmt.Sprintf(`{"users": {"u%d": {"roles": ["ids"], "secrets": ["HASH"]}}}`, id))
				control.Check()
			}
			if _, err := requests.Write(framed(asked(id, 1))); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	if _, err := io.Copy(io.Discard, a.Body); err != nil || a.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%v, %v", a.Trailer, err)
	}
}
