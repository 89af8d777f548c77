package reply_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

var limits = reply.Limits{Bytes: 8, Items: 4, Depth: 2}

func read(text string) (reply.Value, error) {
	return reply.Read(bufio.NewReaderSize(strings.NewReader(text), 64), limits)
}

func TestRead_EveryKind(t *testing.T) {
	for text, want := range map[string]reply.Value{
		"+OK\r\n":            {Kind: '+', Text: []byte("OK")},
		"+\r\n":              {Kind: '+', Text: []byte{}},
		":-5\r\n":            {Kind: ':', Int: -5},
		"$0\r\n\r\n":         {Kind: '$', Text: []byte{}},
		"$4\r\n\r\n\r\n\r\n": {Kind: '$', Text: []byte("\r\n\r\n")},
		"$-1\r\n":            {Kind: '$'},
		"*0\r\n":             {Kind: '*'},
		"*2\r\n:1\r\n*1\r\n+a\r\n": {Kind: '*', Items: []reply.Value{
			{Kind: ':', Int: 1}, {Kind: '*', Items: []reply.Value{{Kind: '+', Text: []byte("a")}}},
		}},
	} {
		if got, err := read(text + "next"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestRead_RefusesWhatIsMalformedOrTooLarge(t *testing.T) {
	for _, text := range []string{
		"\r\n", "a\n", "+OK\n", "HTTP/1.1 400 Bad Request\r\n", ":\r\n", ":1x\r\n", ":9223372036854775808\r\n",
		"$9\r\n123456789\r\n", "$+1\r\na\r\n", "$-2\r\n", "$2\r\nabc\r\n", "$99999999999999999999\r\n",
		"*5\r\n", "*-1\r\n", "*2\r\n*2\r\n:1\r\n:1\r\n*1\r\n:1\r\n", "*1\r\n*1\r\n*1\r\n:1\r\n", "*1\r\n-ERR x\r\n",
		"+" + strings.Repeat("x", 64) + "\r\n",
	} {
		if v, err := read(text); !errors.Is(err, reply.ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
	}
	for _, text := range []string{"", "+OK\r", "$2\r\na", "*2\r\n:1\r\n"} {
		if v, err := read(text); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
	}
}

func TestError_CodesAndLeader(t *testing.T) {
	for text, want := range map[string]isotone.Error{
		"MOVED 0 10.0.0.2:8080":                      {Code: isotone.CodeNotLeader, Message: "the leader is 10.0.0.2:8080", Leader: "10.0.0.2:8080"},
		"ASK 3558 10.0.0.2:8080":                     {Code: isotone.CodeNotLeader, Message: "the leader is 10.0.0.2:8080", Leader: "10.0.0.2:8080"},
		"MOVED 0 fd00::2:8080":                       {Code: isotone.CodeNotLeader, Message: "the leader is [fd00::2]:8080", Leader: "[fd00::2]:8080"},
		"CLUSTERDOWN no leader":                      {Code: isotone.CodeNoLeader, Message: "no leader"},
		"TRYAGAIN the queue is full":                 {Code: isotone.CodeOverloaded, Message: "the queue is full"},
		"LOADING dataset":                            {Code: isotone.CodeOverloaded, Message: "dataset"},
		"NOAUTH":                                     {Code: isotone.CodeUnauthorized},
		"QUOTA 10 a second; retry after 1500 ms":     {Code: isotone.CodeQuotaExceeded, Message: "10 a second; retry after 1500 ms", RetryAfter: 1500 * time.Millisecond},
		"TRYAGAIN quota_exceeded: retry after 20 ms": {Code: isotone.CodeQuotaExceeded, Message: "retry after 20 ms", RetryAfter: 20 * time.Millisecond},
		"QUOTA retry after 4000000000 ms":            {Code: isotone.CodeQuotaExceeded, Message: "retry after 4000000000 ms", RetryAfter: time.Hour},
		"QUOTA retry after -1 ms":                    {Code: isotone.CodeQuotaExceeded, Message: "retry after -1 ms"},
		"QUOTA retry after 5 s":                      {Code: isotone.CodeQuotaExceeded, Message: "retry after 5 s"},
		"NOWORKER all 16 are leased":                 {Code: isotone.CodeNoWorker, Message: "all 16 are leased"},
		"TRYAGAIN no_quorum: two of three":           {Code: isotone.CodeNoQuorum, Message: "two of three"},
		"WRONGCLUSTER another":                       {Code: isotone.CodeWrongCluster, Message: "another"},
		"REGRESSED it was set back":                  {Code: isotone.CodeRegressed, Message: "it was set back"},
		"WRONGTYPE of key":                           {Code: isotone.CodeInvalidArgument, Message: "of key"},
		"ERR count":                                  {Code: isotone.CodeInvalidArgument, Message: "count"},
		"ERR internal: disk full":                    {Code: isotone.CodeInternal, Message: "disk full"},
		"ERR not_found: no timeline":                 {Code: isotone.CodeNotFound, Message: "no timeline"},
		"TRYAGAIN no_worker: none":                   {Code: isotone.CodeNoWorker, Message: "none"},
		"TRYAGAIN quota_exceeded: later":             {Code: isotone.CodeQuotaExceeded, Message: "later"},
		"NOPERM no":                                  {Code: isotone.CodeForbidden, Message: "no"},
		"ERROR internal: x":                          {Code: isotone.CodeInternal, Message: "ERROR internal: x"},
		"":                                           {Code: isotone.CodeInternal},
	} {
		_, err := read("-" + text + "\r\n")
		if text == "" {
			err = reply.Error("")
		}
		var e reply.Error
		if !errors.As(err, &e) || string(e) != text {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got, err := e.Decode()
		if err != nil || *got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if code, _ := e.Code(); code != want.Code {
			t.Errorf("%q: %s", text, code)
		}
	}
	for _, text := range []string{"ASK", "ASK 0 host", "MOVED", "MOVED 10.0.0.2:8080", "MOVED 0 host", "MOVED 0 host:0", "MOVED 0 :1", "MOVED 0 a\nb:1"} {
		if e, err := reply.Error(text).Decode(); !errors.Is(err, reply.ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
}

// FuzzRead: nothing panics, no limit is exceeded, and a reply written again is read alike.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"+OK\r\n", ":5\r\n", "$2\r\n{}\r\n", "$-1\r\n", "*2\r\n:1\r\n*1\r\n+a\r\n", "*1\r\n*1\r\n*1\r\n:1\r\n", "-MOVED 0 ::1:1\r\n",
		"-ERR internal: x\r\n", "$99999999999999999999\r\n", "*4294967295\r\n", "-\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := reply.Read(bufio.NewReaderSize(bytes.NewReader(text), 64), limits)
		var e reply.Error
		if errors.As(err, &e) {
			decoded, err := e.Decode()
			code, _ := e.Code()
			if err == nil && (decoded.Code != code || (code == isotone.CodeNotLeader) != (decoded.Leader != "")) {
				t.Fatalf("%q: %+v", text, decoded)
			}
			return
		}
		if err != nil {
			return
		}
		again, err := reply.Read(bufio.NewReaderSize(bytes.NewReader(appendValue(nil, v)), 64), limits)
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%q: %+v, then %+v, %v", text, v, again, err)
		}
		items := 0
		check(t, v, limits.Depth, &items)
		if items > limits.Items {
			t.Fatalf("%q: %d items", text, items)
		}
	})
}

func check(t *testing.T, v reply.Value, depth int, items *int) {
	if v.Kind == '*' && depth == 0 || v.Kind == '$' && len(v.Text) > limits.Bytes {
		t.Fatalf("%+v", v)
	}
	for _, item := range v.Items {
		*items++
		check(t, item, depth-1, items)
	}
}

func appendValue(b []byte, v reply.Value) []byte {
	switch v.Kind {
	case '+':
		return fmt.Appendf(b, "+%s\r\n", v.Text)
	case ':':
		return fmt.Appendf(b, ":%d\r\n", v.Int)
	case '$':
		if v.Text == nil {
			return append(b, "$-1\r\n"...)
		}
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(v.Text), v.Text)
	}
	b = fmt.Appendf(b, "*%d\r\n", len(v.Items))
	for _, item := range v.Items {
		b = appendValue(b, item)
	}
	return b
}

// FuzzParseTimestamp: a timestamp is read wherever it is cut, and nothing else is one.
func FuzzParseTimestamp(f *testing.F) {
	f.Add([]byte("$16\r\n0123456789abcdef\r\n"))
	f.Add([]byte("$16\r\n0123456789abcdefg\r\n"))
	f.Add([]byte("+OK\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ts, complete, err := reply.ParseTimestamp(b)
		if !complete {
			return
		}
		bytes16, _ := ts.MarshalBinary()
		if want := fmt.Appendf(nil, "$16\r\n%s\r\n", bytes16); err != nil || !bytes.HasPrefix(b, want) {
			t.Fatalf("%q: %v, %v", b, ts, err)
		}
		for i := range reply.TimestampSize {
			if _, complete, err := reply.ParseTimestamp(b[:i]); complete || err != nil {
				t.Fatalf("%q: %v", b[:i], err)
			}
		}
	})
}
