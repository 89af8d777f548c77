package bench

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// Answers of nodes.
const (
	oneReply   = "$16\r\nAAAAAAAABBBBBBBB\r\n"
	movedReply = "-MOVED 0 10.0.0.2:8080\r\n"
	downReply  = "-CLUSTERDOWN no leader is known\r\n"
)

func TestParseRESP_AnswersOfNodes(t *testing.T) {
	binary := oneTimestamp
	binary.First = isotone.Timestamp{Time: 0x0d0a240d0a2d0d0a, Index: 0x0d0a0d0a0d0a0d0a}
	for _, tt := range []struct {
		name  string
		count uint64
		text  string
		want  answer
	}{
		{"one timestamp", 1, oneReply, answer{issued: oneTimestamp}},
		{"five timestamps", 5, oneReply, answer{issued: fiveTimestamps()}},
		{"a timestamp of line ends", 1, "$16\r\n\r\n$\r\n-\r\n\r\n\r\n\r\n\r\n\r\n", answer{issued: binary}},
		{"not the leader", 1, movedReply, answer{code: "not_leader", text: "the leader is 10.0.0.2:8080", leader: "10.0.0.2:8080"}},
		{"a leader with a name", 1, "-MOVED 0 node-2.example:80\r\n", answer{code: "not_leader", text: "the leader is node-2.example:80", leader: "node-2.example:80"}},
		{"a leader with IPv6", 1, "-MOVED 0 fd00::2:8080\r\n", answer{code: "not_leader", text: "the leader is [fd00::2]:8080", leader: "[fd00::2]:8080"}},
		{"no leader", 1, downReply, answer{code: "no_leader", text: "no leader is known"}},
		{"overloaded", 1, "-TRYAGAIN the queue is full\r\n", answer{code: "overloaded", text: "the queue is full"}},
		{"a wrong command", 1, "-ERR count \"0\": want more\r\n", answer{code: "invalid_argument", text: `count "0": want more`}},
		{"an internal error", 1, "-ERR internal: disk full\r\n", answer{code: "internal", text: "disk full"}},
		{"another cluster", 1, "-WRONGCLUSTER it is another\r\n", answer{code: "wrong_cluster", text: "it is another"}},
		{"a password", 1, "-NOAUTH\r\n", answer{code: "unauthorized"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parse := reading{count: tt.count}.parseRESP
			var got answer
			n, err := parse([]byte(tt.text+"$16"), &got)
			if err != nil || n != len(tt.text) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%d bytes of %d, %+v, %v\nwant %+v", n, len(tt.text), got, err, tt.want)
			}
			for i := range len(tt.text) {
				if n, err := parse([]byte(tt.text[:i]), &got); n != 0 || err != nil {
					t.Fatalf("the first %d bytes: %d, %v", i, n, err)
				}
			}
		})
	}
}

func TestParseRESP_RefusesWhatIsNoAnswer(t *testing.T) {
	for name, text := range map[string]string{
		"another protocol":       "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a status":               "+OK\r\n",
		"a number":               ":16\r\n",
		"an array":               "*1\r\n" + oneReply,
		"null":                   "$-1\r\n",
		"null of RESP3":          "_\r\n",
		"a short string":         "$15\r\nAAAAAAAABBBBBBB\r\n",
		"a long string":          "$17\r\nAAAAAAAABBBBBBBBC\r\n",
		"more than announced":    "$16\r\nAAAAAAAABBBBBBBBC\r\n",
		"bare line ends":         "$16\nAAAAAAAABBBBBBBB\n",
		"a bare end":             "$16\r\nAAAAAAAABBBBBBBB\n\n",
		"an unknown word":        "-STRANGE Operation against a key\r\n",
		"no word":                "-\r\n",
		"a longer word":          "-ERROR x\r\n",
		"moved without a target": "-MOVED\r\n",
		"moved without a slot":   "-MOVED 10.0.0.2:8080\r\n",
		"moved without a port":   "-MOVED 0 10.0.0.2\r\n",
		"moved to port 0":        "-MOVED 0 10.0.0.2:0\r\n",
		"moved without a host":   "-MOVED 0 :8080\r\n",
		"two lines in one":       "-MOVED 0 a\n:8080\r\n",
		"a line without end":     "-ERR " + strings.Repeat("x", answerMax),
	} {
		var a answer
		if n, err := (reading{count: 1}).parseRESP([]byte(text), &a); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %d, %+v, %v", name, n, a, err)
		}
	}
}

func FuzzParseRESP(f *testing.F) {
	for _, text := range []string{oneReply, oneReply + movedReply, movedReply, downReply, "-ERR internal: x\r\n", "$-1\r\n", "+OK\r\n"} {
		f.Add([]byte(text), uint16(20), uint64(1))
		f.Add([]byte(text), uint16(4), uint64(5))
	}
	f.Fuzz(func(t *testing.T, text []byte, split uint16, count uint64) {
		var whole answer
		n, err := checkParser(t, reading{count: count}.parseRESP, text, split, &whole)
		switch {
		case err != nil || n == 0:
		case whole.code == "" && (n != reply.TimestampSize || whole.issued.Count != count):
			t.Fatalf("%d bytes, %+v", n, whole)
		case (whole.code == string(isotone.CodeNotLeader)) != (whole.leader != ""):
			t.Fatalf("%+v", whole)
		case whole.code != "" && !knownCode(isotone.Code(whole.code)):
			t.Fatalf("%+v", whole)
		}
	})
}

func TestRESP_CommandsAndAnswersHoweverTheyArrive(t *testing.T) {
	stream := []byte(oneReply + movedReply + oneReply)
	for cut := 1; cut < len(stream); cut++ {
		s := &script{pieces: [][]byte{stream[:cut], stream[cut:]}}
		o := testOptions(func(o *Options) { o.Protocol, o.Pipeline = "resp", 3 })
		c := newRESP(o, nil).pipe(s, "a:1")
		if err := c.send(3); err != nil || s.wrote.String() != strings.Repeat("*1\r\n$2\r\nTS\r\n", 3) {
			t.Fatalf("sent %q, %v", s.wrote.String(), err)
		}
		ends := []int{reply.TimestampSize, reply.TimestampSize + len(movedReply), len(stream)}
		for i, code := range []string{"", "not_leader", ""} {
			along := i > 0 && (ends[i] <= cut || ends[i-1] > cut)
			var a answer
			if err := c.receive(&a); err != nil || a.code != code || code == "" && a.issued != oneTimestamp || a.along != along {
				t.Fatalf("cut at %d, answer %d: %+v, %v", cut, i, a, err)
			}
		}
		if c.buffered() {
			t.Fatalf("cut at %d: something is left", cut)
		}
	}
}

func TestRESPCommand(t *testing.T) {
	for _, tt := range []struct {
		count    uint64
		mode     isotone.ReadMode
		timeline string
		want     string
	}{
		{1, isotone.ReadDefault, "", "*1 $2 TS "},
		{1000, isotone.ReadDefault, "", "*2 $2 TS $4 1000 "},
		{1, isotone.ReadLease, "", "*3 $2 TS $1 1 $5 LEASE "},
		{isotone.RangeCountMax, isotone.ReadQuorum, "", "*3 $2 TS $10 4294967296 $6 QUORUM "},
		{1, isotone.ReadDefault, "a/b", "*3 $2 TS $8 TIMELINE $3 a/b "},
	} {
		o := testOptions(func(o *Options) { o.Count, o.Mode, o.Timeline = tt.count, tt.mode, tt.timeline })
		if got := strings.ReplaceAll(respCommand(o), "\r\n", " "); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
