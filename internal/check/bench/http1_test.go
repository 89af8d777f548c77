package bench

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// Answers of nodes.
const (
	oneAnswer   = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nCache-Control: no-store\r\nContent-Length: 16\r\nDate: Sat, 21 Nov 2026 09:00:00 GMT\r\n\r\nAAAAAAAABBBBBBBB"
	rangeAnswer = "HTTP/1.1 200 OK\r\ncontent-length:24\r\n\r\nAAAAAAAABBBBBBBB\x00\x00\x00\x00\x00\x00\x00\x05"
	notLeader   = "HTTP/1.1 409 Conflict\r\nIsotone-Leader: 10.0.0.2:8080\r\nLocation: http://10.0.0.2:8080/timestamp\r\nContent-Length: 56\r\n\r\n" +
		`{"error":{"code":"not_leader","message":"node 2 leads"}}`
)

var oneTimestamp = isotone.Range{First: isotone.Timestamp{Time: 0x4141414141414141, Index: 0x4242424242424242}, Count: 1}

func fiveTimestamps() isotone.Range {
	r := oneTimestamp
	r.Count = 5
	return r
}

func TestParse_AnswersOfNodes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count uint64
		text  string
		want  answer
	}{
		{"one timestamp", 1, oneAnswer, answer{issued: oneTimestamp}},
		{"a range", 5, rangeAnswer, answer{issued: fiveTimestamps()}},
		{"not the leader", 1, notLeader, answer{code: "not_leader", text: "node 2 leads", leader: "10.0.0.2:8080"}},
		{"the last one", 1, strings.Replace(oneAnswer, "Date:", "Connection: close\r\nDate:", 1), answer{issued: oneTimestamp, last: true}},
		{"HTTP/1.0", 1, strings.Replace(oneAnswer, "HTTP/1.1", "HTTP/1.0", 1), answer{issued: oneTimestamp, last: true}},
		{"no reason phrase", 1, strings.Replace(oneAnswer, "200 OK", "200", 1), answer{issued: oneTimestamp}},
		{"an error of another server", 1, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops", answer{code: "status_502", text: `"oops"`}},
		{"an unknown code", 1, "HTTP/1.1 500 X\r\nContent-Length: 24\r\n\r\n" + `{"error":{"code":"huh"}}`, answer{code: "status_500", text: `"{\"error\":{\"code\":\"huh\"}}"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got answer
			n, err := reading{count: tt.count}.parse([]byte(tt.text+"HTTP/1.1"), &got)
			if err != nil || n != len(tt.text) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%d bytes of %d, %+v, %v\nwant %+v", n, len(tt.text), got, err, tt.want)
			}
			for i := range len(tt.text) {
				if n, err := (reading{count: tt.count}).parse([]byte(tt.text[:i]), &got); n != 0 || err != nil {
					t.Fatalf("the first %d bytes: %d, %v", i, n, err)
				}
			}
		})
	}
}

func TestParse_RefusesWhatIsNoAnswer(t *testing.T) {
	for name, text := range map[string]string{
		"another protocol":        "SSH-2.0-OpenSSH_9.2p1\r\n",
		"an informational answer": "HTTP/1.1 100 Continue\r\n\r\n",
		"no length":               "HTTP/1.1 200 OK\r\n\r\n",
		"two lengths":             "HTTP/1.1 200 OK\r\nContent-Length: 16\r\nContent-Length: 16\r\n\r\n",
		"a negative length":       "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"a huge length":           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"chunks":                  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a bare line end":         "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
		"no colon":                "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
		"a short body":            "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n123456789012345",
		"a page":                  "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n<html>hello</html>\r\n",
		"a header without end":    "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", answerMax),
	} {
		var a answer
		if n, err := (reading{count: 1}).parse([]byte(text), &a); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %d, %+v, %v", name, n, a, err)
		}
	}
	var a answer
	if _, err := (reading{count: 6}).parse([]byte(rangeAnswer), &a); !errors.Is(err, errMalformed) {
		t.Errorf("5 timestamps instead of 6: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{oneAnswer, rangeAnswer, notLeader, "HTTP/1.1 200 OK\r\n\r\n", oneAnswer + rangeAnswer} {
		f.Add([]byte(text), uint16(20), uint64(1))
		f.Add([]byte(text), uint16(90), uint64(5))
	}
	f.Fuzz(func(t *testing.T, text []byte, split uint16, count uint64) {
		r := reading{count: count}
		var whole answer
		n, err := checkParser(t, r.parse, text, split, &whole)
		if err == nil && n > 0 && whole.code == "" && whole.issued.Count != max(1, count) && count > 0 {
			t.Fatalf("%d of %d bytes, %+v", n, len(text), whole)
		}
	})
}

// checkParser parses text and fails unless the answer does not depend on what follows it,
// and is incomplete without its last byte.
func checkParser(t *testing.T, parse parser, text []byte, split uint16, whole *answer) (int, error) {
	t.Helper()
	var part, again answer
	n, err := parse(text, whole)
	if n < 0 || n > len(text) {
		t.Fatalf("%d of %d bytes, %+v, %v", n, len(text), whole, err)
	}
	cut := min(int(split), len(text))
	m, partErr := parse(text[:cut], &part)
	switch {
	case n > 0 && err == nil && cut >= n && (m != n || partErr != nil || !reflect.DeepEqual(part, *whole)):
		t.Fatalf("%d bytes: %+v; of %d bytes: %d, %+v, %v", n, *whole, cut, m, part, partErr)
	case n > 0 && err == nil && cut < n && (m != 0 || partErr != nil):
		t.Fatalf("an answer of %d bytes is read from %d: %d, %v", n, cut, m, partErr)
	}
	if k, e := parse(text, &again); k != n || (e == nil) != (err == nil) {
		t.Fatalf("%d, %v; then %d, %v", n, err, k, e)
	}
	return n, err
}
