package resp

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestParse_LimitsAreReached(t *testing.T) {
	var q request
	most := array(strings.Split(strings.Repeat("x ", argsMax-1)+strings.Repeat("y", bulkBytesMax-argsMax+1), " ")...)
	if len(most) >= UnreadMin {
		t.Errorf("the longest command has %d bytes, UnreadMin is %d", len(most), UnreadMin)
	}
	if used, err := q.parse(most); used != len(most) || err != nil || len(q.args) != argsMax {
		t.Errorf("used %d of %d, %v", used, len(most), err)
	}
	line := []byte(strings.Repeat("x", inlineMax-1) + "\n")
	if used, err := q.parse(line); used != len(line) || err != nil {
		t.Errorf("used %d of %d, %v", used, len(line), err)
	}
}

func TestParse_DoesNotAllocate(t *testing.T) {
	var q request
	for _, b := range [][]byte{array("TS", "4294967296", "QUORUM"), []byte("TS 1 LEASE\r\n"), array("ECHO", strings.Repeat("x", 1000))} {
		if got := testing.AllocsPerRun(100, func() { _, _ = q.parse(b) }); got != 0 {
			t.Errorf("%q: %v allocations", b, got)
		}
	}
}

func addSeeds(f *testing.F) {
	for _, tt := range raw {
		f.Add([]byte(tt.say), uint64(len(tt.say)))
	}
	f.Add(bytes.Repeat([]byte(plain), 40), uint64(0x5a5a))
}

// FuzzParse: a command is the same whatever follows it, and whatever has arrived of it
// before; what was parsed and is written again is parsed the same.
func FuzzParse(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte, _ uint64) {
		var q request
		used, err := q.parse(b)
		switch {
		case used < 0 || used > len(b):
			t.Fatalf("used %d of %d bytes", used, len(b))
		case err != nil && used != 0:
			t.Fatalf("used %d bytes of what is wrong: %v", used, err)
		case used == 0 && err == nil && len(b) >= UnreadMin:
			t.Fatalf("%d bytes are not enough for a command", len(b))
		}
		args := make([]string, len(q.args))
		total := 0
		for i, arg := range q.args {
			args[i] = string(arg)
			total += len(arg)
		}
		if len(args) > argsMax || total > max(bulkBytesMax, inlineMax) {
			t.Fatalf("%d arguments of %d bytes", len(args), total)
		}
		checkPrefixes(t, b, used, err)
		if used == 0 || len(args) == 0 {
			return
		}
		again := array(args...)
		if n, err := q.parse(again); n != len(again) || err != nil {
			t.Fatalf("%q: used %d bytes, %v", again, n, err)
		}
		for i, arg := range q.args {
			if string(arg) != args[i] {
				t.Fatalf("argument %d is %q, was %q", i, arg, args[i])
			}
		}
	})
}

// checkPrefixes parses all beginnings of b, of which the whole gives used and err. None
// may give more, and a fault that was found stays.
func checkPrefixes(t *testing.T, b []byte, used int, err error) {
	var q request
	step := max(1, len(b)/200)
	for n := 0; n <= len(b); n += step {
		got, gotErr := q.parse(b[:n])
		switch {
		case gotErr != nil && gotErr != err && (err == nil || gotErr.Error() != err.Error()):
			t.Fatalf("%d of %d bytes give %v, all give %v", n, len(b), gotErr, err)
		case got != 0 && got != used:
			t.Fatalf("%d of %d bytes give a command of %d bytes, all give %d", n, len(b), got, used)
		case used != 0 && n >= used && got != used:
			t.Fatalf("%d of %d bytes give no command, all give one of %d", n, len(b), used)
		}
	}
}

// FuzzConn: answers do not depend on how the input was split, when the backend
// answers, or whether the client reads.
func FuzzConn(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte, pieces uint64) {
		if len(b) > 4*inlineMax {
			return
		}
		whole := newOracle()
		w := newTape(t, New(Config{Backend: whole}))
		w.feed(b)
		want := w.finish(whole)

		o := newOracle()
		o.later = pieces&1 != 0
		split := newTape(t, New(Config{Backend: o}))
		if pieces&2 != 0 {
			split.outputMax = 0
		}
		for rest, bits := b, pieces; len(rest) > 0; bits = bits>>5 | bits<<59 {
			n := min(int(bits&31)+1, len(rest))
			split.feed(rest[:n])
			rest = rest[n:]
			if bits&3 == 3 {
				o.answer()
				split.turn()
			}
		}
		if got := split.finish(o); got != want {
			t.Fatalf("said %q in pieces %x\n got %q\nwant %q", b, pieces, got, want)
		}
		if !reflect.DeepEqual(w.reason, split.reason) || !bytes.Equal(w.in, split.in) && !w.closed {
			t.Fatalf("closed with %v and %v, left %q and %q", w.reason, split.reason, w.in, split.in)
		}
		checkAnswers(t, []byte(want))
	})
}

// checkAnswers fails unless b is a sequence of whole answers, which it reads with little
// regard to limits.
func checkAnswers(t *testing.T, b []byte) {
	r := bytes.NewBuffer(b)
	for left := 0; r.Len() > 0 || left > 0; {
		if left == 0 {
			left = 1
		}
		left--
		line, err := r.ReadBytes('\n')
		if err != nil || len(line) < 3 || line[len(line)-2] != '\r' {
			t.Fatalf("line %q of answers %q", line, b)
		}
		n := 0
		for _, c := range line[1 : len(line)-2] {
			n = n*10 + int(c-'0')
		}
		negative := line[1] == '-'
		switch kind := line[0]; {
		case strings.IndexByte("+-:_", kind) >= 0 || negative:
		case kind == '$' || kind == '=':
			if text := r.Next(n + 2); len(text) != n+2 || !bytes.HasSuffix(text, []byte("\r\n")) {
				t.Fatalf("text %q in answers %q: %v", text, b, io.ErrUnexpectedEOF)
			}
		case kind == '*' || kind == '~':
			left += n
		case kind == '%':
			left += 2 * n
		default:
			t.Fatalf("kind %q in answers %q", kind, b)
		}
	}
}
