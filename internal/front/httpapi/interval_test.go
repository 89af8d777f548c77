package httpapi

import (
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
)

func TestParseIntervalQuery_Good(t *testing.T) {
	for raw, want := range map[string]IntervalQuery{
		"":                                      {},
		"&x=1&x=2&y":                            {},
		"nonce=0":                               {},
		"nonce=18446744073709551615":            {Nonce: math.MaxUint64},
		"nonce=7&format=json":                   {Nonce: 7, JSON: true, Named: true},
		"format=json&n=65536":                   {Count: 65536, JSON: true, Named: true},
		"n=1":                                   {Count: 1},
		"%6E=%31%32":                            {Count: 12},
		"wait=0123456789abcdefFEDCBA9876543210": {Wait: isotone.Timestamp{Time: 0x0123456789abcdef, Index: 0xfedcba9876543210}, Waits: true},
	} {
		if got, err := ParseIntervalQuery(raw); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func TestParseIntervalQuery_Bad(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	for raw, hint := range map[string]string{
		"nonce=": "64 bits", "nonce=-1": "64 bits", "nonce=18446744073709551616": "64 bits", "nonce=0x1": "64 bits", "nonce=1&nonce=1": "twice",
		"n=0": "1 to 65536", "n=65537": "1 to 65536", "n=01": "1 to 65536", "n=": "1 to 65536", "n=1&n=1": "twice",
		"wait=": "32 hex", "wait=0": "32 hex", "wait=" + zero[1:] + "g": "32 hex", "wait=" + zero + "&wait=" + zero: "twice",
		"format=range": "want json", "format=json&format=json": "twice", "n=1&nonce=1": "one of", "nonce=0&wait=" + zero: "one of",
		"wait=" + zero + "&n=1": "one of", "a;b": "semicolon", "n=%zz": "percent",
	} {
		if q, err := ParseIntervalQuery(raw); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %+v, %v, want %q", raw, q, err, hint)
		}
	}
}

func TestIntervalQuery_AcceptingYieldsToTheQuery(t *testing.T) {
	for raw, want := range map[string]bool{"": true, "n=5": true, "format=json": true} {
		q, err := ParseIntervalQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Accepting("application/json").JSON; got != want {
			t.Errorf("%q: %v", raw, got)
		}
		if got := q.Accepting("*/*"); got != q {
			t.Errorf("%q: %+v", raw, got)
		}
	}
}

func TestAppendReadingJSON(t *testing.T) {
	r := interval.Reading{Earliest: 1<<62 + 1, Latest: 1<<62 + 2, Limit: 1<<62 + 3, Term: 9, Cluster: 0xabc}
	const want = `{"earliest":"4611686018427387905","latest":"4611686018427387906","limit":"4611686018427387907","term":"9",` +
		`"cluster":"0000000000000abc","nonce":"18446744073709551615"}`
	if got := string(AppendReadingJSON(nil, r, math.MaxUint64)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const most = math.MaxUint64
	got := AppendReadingJSON(nil, interval.Reading{Earliest: most, Latest: most, Limit: most, Term: most, Cluster: most}, most)
	if len(got) > ReadingJSONMax || !json.Valid(got) {
		t.Errorf("%d bytes, at most %d: %s", len(got), ReadingJSONMax, got)
	}
}

// FuzzParseIntervalQuery holds the parser against net/url: what it takes is what net/url reads.
func FuzzParseIntervalQuery(f *testing.F) {
	for _, seed := range []string{"", "nonce=5", "n=2&format=json", "wait=0123456789abcdef0123456789abcdef", "n=1&n=1", "a;b", "%", "%6eonce=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := ParseIntervalQuery(raw)
		if err != nil {
			if !errors.Is(err, isotone.ErrInvalidArgument) {
				t.Fatalf("%q: %v is outside the vocabulary", raw, err)
			}
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q: taken, but net/url says %v", raw, err)
		}
		asked := len(values["nonce"]) + len(values["n"]) + len(values["wait"])
		if asked > 1 || len(values["format"]) > 1 || q.Waits != values.Has("wait") || (q.Count > 0) != values.Has("n") || q.Count > 65536 {
			t.Fatalf("%q: %+v", raw, q)
		}
	})
}
