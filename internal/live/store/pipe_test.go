package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// script is a loader whose loads have these outcomes, one after the other.
type script struct {
	outcomes []outcome
	closed   bool
}

type outcome struct {
	document string
	changed  bool
	err      error
}

func (s *script) Load(ctx context.Context, _ int) ([]byte, bool, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, false, errors.New("no deadline")
	}
	o := s.outcomes[0]
	s.outcomes = s.outcomes[1:]
	return []byte(o.document), o.changed, o.err
}

func (s *script) Close() { s.closed = true }

// served has Serve answer requests for a URL, and returns what it wrote.
func served(t *testing.T, l *script, url string, requests int) *bufio.Reader {
	t.Helper()
	var in, out bytes.Buffer
	for range requests {
		line, err := json.Marshal(request{Version: version, URL: url, SizeMax: 10, TimeoutMS: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	if err := Serve(t.Context(), &in, &out, func(*URL) (Loader, error) { return l, nil }); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReaderSize(&out, replyLineMax)
}

const someURL = "postgres://app:p%40ss@db/shop#SELECT 1"

func TestPipe_CarriesDocumentsAndErrors(t *testing.T) {
	l := &script{outcomes: []outcome{
		{document: `{"a":1}` + "\n", changed: true},
		{},
		{err: isotone.Errorf(isotone.CodeNotFound, "no row for app, p@ss")},
		{err: context.DeadlineExceeded},
		{err: errors.New(strings.Repeat("ä", 9000))},
		{document: "12345678901", changed: true}, // one byte too many
		{document: "[]", changed: true},
	}}
	from := served(t, l, someURL, 7)
	if !l.closed {
		t.Error("the loader is not closed")
	}
	for i, want := range []struct {
		document string
		changed  bool
		message  string
	}{
		{`{"a":1}` + "\n", true, ""},
		{"", false, ""},
		{"", false, "not_found: no row for ***, ***"},
		{"", false, "deadline_exceeded: the database did not answer in time"},
		{"", false, "internal: " + strings.Repeat("ä", messageBytesMax/2)},
		{"", false, "internal: the loader does not keep to the limit"},
		{"[]", true, ""},
	} {
		document, changed, usable, err := ask(io.Discard, from, request{SizeMax: 10})
		message := ""
		if err != nil {
			message = err.Error()
		}
		if string(document) != want.document || changed != want.changed || !usable || message != want.message {
			t.Errorf("%d: %q, %v, %v, %s", i, document, changed, usable, message)
		}
	}
}

func TestServe_RefusesAnotherVersionAndABadURL(t *testing.T) {
	var out bytes.Buffer
	in := strings.NewReader(`{"version":2,"url":"` + someURL + `"}` + "\n" + `{"version":1,"url":"postgres://app:hidden@"}` + "\n")
	if err := Serve(t.Context(), in, &out, nil); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReaderSize(&out, replyLineMax)
	for _, want := range []string{"different versions", "want a host"} {
		_, _, _, err := ask(io.Discard, from, request{SizeMax: 10})
		if !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := Serve(t.Context(), strings.NewReader("x\n"), io.Discard, nil); err == nil {
		t.Error("a request that is no JSON is answered")
	}
}

func TestAsk_DoesNotBelieveAnotherProgram(t *testing.T) {
	for _, says := range []string{
		"", "hello\n", `{"size":11}` + "\n", `{"size":-1}` + "\n", `{"size":5}` + "\nabc", `{"code":"internal","size":1}` + "\na",
		`{"unchanged":true,"size":1}` + "\na", `{"other":1}` + "\n", strings.Repeat(" ", replyLineMax) + "{}\n", `{"size":1}`,
	} {
		document, _, usable, err := ask(io.Discard, bufio.NewReaderSize(strings.NewReader(says), replyLineMax), request{SizeMax: 10})
		if err == nil || usable || document != nil {
			t.Errorf("%.40q: %q, %v, %v", says, document, usable, err)
		}
	}
}

// FuzzAsk checks that a reply, whatever it is, makes a document within the limit or an error.
func FuzzAsk(f *testing.F) {
	for _, seed := range []string{`{"size":2}` + "\n[]", `{"unchanged":true}` + "\n", `{"code":"not_found","message":"x"}` + "\n", "{}\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		document, changed, usable, err := ask(io.Discard, bufio.NewReaderSize(bytes.NewReader(says), replyLineMax), request{SizeMax: 10})
		if len(document) > 10 || err == nil && !usable || err != nil && (changed || document != nil) {
			t.Errorf("%q, %v, %v, %v", document, changed, usable, err)
		}
	})
}
