package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// TestMulti_TheTimestampsOfATransactionShareARequest, in the order of the commands, and what
// follows EXEC waits for its answer.
func TestMulti_TheTimestampsOfATransactionShareARequest(t *testing.T) {
	o := newOracle()
	o.later = true
	w := newTape(t, New(Config{Backend: o, IDs: &ids{next: 7}}))
	w.feed([]byte("MULTI\r\n" + strings.Repeat(plain, 3) + "SNOWFLAKE\r\nTS 2\r\n"))
	if len(o.batches) != 0 || w.paused {
		t.Fatalf("%d batches before EXEC, paused: %v", len(o.batches), w.paused)
	}
	w.feed([]byte("EXEC\r\nPING\r\n"))
	if len(o.batches) != 1 || !w.paused {
		t.Fatalf("%d batches, paused: %v", len(o.batches), w.paused)
	}
	want := "+OK\r\n" + strings.Repeat("+QUEUED\r\n", 5) + "*5\r\n" + stamp(0) + stamp(1) + stamp(2) + ":7\r\n" + stamp(3) + "+PONG\r\n"
	if got := w.finish(o); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(o.batches) != 2 {
		t.Errorf("%d batches", len(o.batches))
	}
}

// TestMulti_ExecItselfRedirects, as Redis does, where a command cannot be answered by this
// node. Other errors are answers to their commands.
func TestMulti_ExecItselfRedirects(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&isotone.Error{Code: isotone.CodeNotLeader, Leader: "b.example:8082"}, "-MOVED 0 b.example:8082\r\n"},
		{isotone.ErrNoLeader, "-CLUSTERDOWN no leader is known\r\n"},
		{isotone.ErrOverloaded, "*3\r\n:7\r\n-TRYAGAIN too many requests are waiting\r\n:8\r\n"},
	} {
		for _, later := range []bool{false, true} {
			o := newOracle()
			o.err, o.later = tt.err, later
			w := newTape(t, New(Config{Backend: o, IDs: &ids{next: 7}}))
			w.feed([]byte("MULTI\r\nSNOWFLAKE\r\nTS\r\nSNOWFLAKE\r\nEXEC\r\nPING\r\n"))
			want := "+OK\r\n" + strings.Repeat("+QUEUED\r\n", 3) + tt.want + "+PONG\r\n"
			if got := w.finish(o); got != want {
				t.Errorf("%v, later %v: got %q, want %q", tt.err, later, got, want)
			}
		}
	}
}

func TestMulti_TheQueueIsBounded(t *testing.T) {
	tooMany := fmt.Sprintf("-ERR a transaction has at most %d commands and %d bytes: send a pipeline without MULTI\r\n", queueCommandsMax, queueBytesMax)
	const abort = "-EXECABORT Transaction discarded because of previous errors.\r\n"
	long := string(array("ECHO", strings.Repeat("x", 30<<10)))
	for say, want := range map[string]string{
		strings.Repeat(plain, queueCommandsMax+1): strings.Repeat("+QUEUED\r\n", queueCommandsMax) + tooMany,
		strings.Repeat(long, 3):                   "+QUEUED\r\n+QUEUED\r\n" + tooMany,
	} {
		o := newOracle()
		w := newTape(t, New(Config{Backend: o}))
		w.feed([]byte("MULTI\r\n" + say + "EXEC\r\nTS\r\n"))
		if got := w.finish(o); got != "+OK\r\n"+want+abort+stamp(0) {
			t.Errorf("got %.200q", got)
		}
	}
}

func TestMulti_TheAnswersAreBounded(t *testing.T) {
	o := newOracle()
	w := newTape(t, New(Config{Backend: o, IDs: &ids{next: 1 << 62}}))
	many := fmt.Sprintf("SNOWFLAKE %d AS STRING\r\n", idsMax)
	w.feed([]byte("MULTI\r\n" + strings.Repeat(many, 3) + "EXEC\r\nMULTI\r\n" + many + many + "EXEC\r\nTS\r\n"))
	got := w.finish(o)
	refused := fmt.Sprintf("-ERR the answers of this transaction have more than %d bytes: send a pipeline without MULTI\r\n", execBytesMax)
	begin := "+OK\r\n" + strings.Repeat("+QUEUED\r\n", 3) + refused + "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n"
	if size := len(begin) + 2*(len("*16384\r\n")+idsMax*idReplyMax) + timestampReply; len(got) != size || !strings.HasPrefix(got, begin) {
		t.Errorf("%d bytes, want %d: %.200q", len(got), size, got)
	}
}

// TestMulti_AClientThatLeaves during EXEC, or a server that stops, leaves nothing behind.
func TestMulti_AClientThatLeaves(t *testing.T) {
	for name, end := range map[string]func(*Front, *tape){
		"leaves": func(_ *Front, w *tape) { w.conn.Closed(nil, nil) },
		"stops":  func(f *Front, _ *tape) { f.Stop() },
	} {
		o := newOracle()
		o.later = true
		f := New(Config{Backend: o})
		w := newTape(t, f)
		w.feed([]byte("MULTI\r\nTS\r\nEXEC\r\n"))
		end(f, w)
		o.answer()
		if name == "stops" && !w.closed {
			t.Error("the connection stays open")
		}
	}
}

// TestMulti_OtherConnectionsGoOn while one waits for its EXEC.
func TestMulti_OtherConnectionsGoOn(t *testing.T) {
	o := newOracle()
	o.later = true
	f := New(Config{Backend: o})
	one, other := newTape(t, f), newTape(t, f)
	one.feed([]byte("MULTI\r\nTS\r\nPING a\r\nTS 3\r\nEXEC\r\n"))
	other.feed([]byte("PING\r\n"))
	if got := other.finish(newOracle()); got != "+PONG\r\n" {
		t.Errorf("got %q", got)
	}
	if got, want := one.finish(o), "+OK\r\n"+strings.Repeat("+QUEUED\r\n", 3)+"*3\r\n"+stamp(0)+bulk("a")+stamp(1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
