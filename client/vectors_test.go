package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// wire is a text whose characters U+0000 to U+00FF stand for one byte each.
type wire []byte

func (w *wire) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	for _, r := range s {
		if r > 0xff {
			return fmt.Errorf("%q is no byte", r)
		}
		*w = append(*w, byte(r))
	}
	return nil
}

// vector is a case of conformance/vectors/resp.json.
type vector struct {
	About, Method, Mode, Floor, First, Error, Asked, Leader string
	Count                                                   uint64 `json:",string"`
	IDs, Members                                            []string
	Malformed, Incomplete                                   bool
	Cluster                                                 *string
	Wire                                                    wire
}

func vectors(t *testing.T) (v struct{ Requests, Answers, Slots, Clusters []vector }) {
	text, err := os.ReadFile("../conformance/vectors/resp.json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.Requests) == 0 || len(v.Answers) == 0 || len(v.Slots) == 0 || len(v.Clusters) == 0 {
		t.Fatal(err, "or a list is missing")
	}
	return v
}

// kind returns the kind of the requests for a call.
func (v *vector) kind() kind {
	switch v.Method {
	case "ids":
		return kindID
	case "timestamps64":
		return kind64 + v.mode()
	}
	return v.mode()
}

func (v *vector) mode() kind {
	mode, _ := isotone.ParseReadMode(v.Mode)
	return kind(mode)
}

func (v *vector) reader() *bufio.Reader {
	return bufio.NewReaderSize(strings.NewReader(string(v.Wire)), bufferSize)
}

func TestVectors_Requests(t *testing.T) {
	for _, v := range vectors(t).Requests {
		got := appendRequest(nil, v.kind(), v.Count)
		if v.Floor != "" {
			floor, err := isotone.ParseTimestamp(v.Floor)
			if err != nil {
				t.Fatal(err)
			}
			got = appendAbove(nil, v.kind(), v.Count, floor)
		}
		if string(got) != string(v.Wire) {
			t.Errorf("%s of %d, mode %q, floor %q: %q, want %q", v.Method, v.Count, v.Mode, v.Floor, got, v.Wire)
		}
	}
}

// read returns what an answer means, in the form of the vectors.
func (v *vector) read() (got vector, err error) {
	b := newBatch(nil, v.kind())
	b.state.Store(stateSealed | v.Count)
	if err := readAnswer(v.reader(), b); err != nil {
		return got, err
	}
	for _, id := range b.ids {
		got.IDs = append(got.IDs, id.String())
	}
	switch {
	case v.kind().is64():
		got.First = isotone.Timestamp64From(b.first).String()
	case v.kind() != kindID:
		got.First = b.first.String()
	}
	return got, nil
}

func TestVectors_Answers(t *testing.T) {
	for _, v := range vectors(t).Answers {
		got, err := v.read()
		if !v.judge(t, err) && (got.First != v.First || !slices.Equal(got.IDs, v.IDs)) {
			t.Errorf("%s: %q, %q", v.About, got.First, got.IDs)
		}
	}
}

// judge fails the test unless err is what the vector says, and reports whether it says that there is one.
func (v *vector) judge(t *testing.T, err error) bool {
	t.Helper()
	var refusal *isotone.Error
	isRefusal := errors.As(err, &refusal)
	isMalformed, isCut := errors.Is(err, reply.ErrMalformed), errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if isRefusal != (v.Error != "") || isMalformed != v.Malformed || isCut != v.Incomplete {
		t.Errorf("%s: %v", v.About, err)
	}
	return err != nil
}

func TestVectors_Slots(t *testing.T) {
	for _, v := range vectors(t).Slots {
		value, err := readReply(v.reader())
		seen, faulty := viewOf(value, v.Asked)
		if err == nil {
			err = faulty
		}
		if !v.judge(t, err) && (seen.Leader != v.Leader || !slices.Equal(seen.Members, v.Members)) {
			t.Errorf("%s: %+v", v.About, seen)
		}
	}
}

func TestVectors_Clusters(t *testing.T) {
	for _, v := range vectors(t).Clusters {
		value, err := readReply(v.reader())
		if err != nil {
			t.Fatal(err)
		}
		id, told, err := clusterOf(string(value.Text))
		if v.judge(t, err) {
			continue
		}
		got := id.String()
		if id == 0 {
			got = ""
		}
		if told != (v.Cluster != nil) || told && got != *v.Cluster {
			t.Errorf("%s: %s, %v", v.About, id, told)
		}
	}
}

func TestVectors_QuotaPauses(t *testing.T) {
	text, err := os.ReadFile("../conformance/vectors/backoff.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Quota []struct {
			RetryAfter         time.Duration `json:"retry_after_ms"`
			Failures, Min, Max int
		}
	}
	if err := json.Unmarshal(text, &v); err != nil || len(v.Quota) == 0 {
		t.Fatal(err, "or there are no cases")
	}
	for _, c := range v.Quota {
		for range 100 {
			got := quotaPause(&isotone.Error{RetryAfter: c.RetryAfter * time.Millisecond}, c.Failures)
			if got < time.Duration(c.Min)*time.Microsecond || got >= time.Duration(c.Max)*time.Microsecond {
				t.Errorf("%+v: %v", c, got)
			}
		}
	}
}
