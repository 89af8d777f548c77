package resp

import (
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// fakeLessor leases worker 5, or fails. With later set it answers when answer is called.
type fakeLessor struct {
	later   bool
	err     error
	asked   []front.WorkerRequest
	waiting *front.WorkerRequest
}

func (d *fakeLessor) LeaseWorker(r *front.WorkerRequest) {
	q := *r
	q.Done = nil
	d.asked = append(d.asked, q)
	d.waiting = r
	if !d.later {
		d.answer()
	}
}

func (d *fakeLessor) answer() {
	r := d.waiting
	r.Err, r.Worker, r.Layout, r.Lease = d.err, 5, snowflake.Twitter, snowflake.Lease{Start: int64(r.From), End: int64(r.From + r.Length)}
	r.Done(r)
}

const leaseReply = "*5\r\n:5\r\n:1000\r\n:1600\r\n$9\r\n41/5/5/12\r\n:1288834974657\r\n"

func TestConn_WorkerIsLeasedInItsPlace(t *testing.T) {
	o, d := newOracle(), &fakeLessor{later: true}
	w := newTape(t, New(Config{Backend: o, Lessor: d}))
	w.feed([]byte("PING\r\nWORKER LEASE 00000000000000ff 1000 600\r\nPING\r\n"))
	if !w.paused || len(d.asked) != 1 {
		t.Fatalf("paused: %v, %d requests", w.paused, len(d.asked))
	}
	d.answer()
	w.feed(nil)
	if got, want := w.finish(o), "+PONG\r\n"+leaseReply+"+PONG\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConn_WorkerCommandsAreRead(t *testing.T) {
	for say, want := range map[string]front.WorkerRequest{
		"WORKER LEASE 00000000000000ff 1000 600\r\n":          {Session: 255, Fixed: -1, From: 1000, Length: 600},
		"worker lease 00000000000000FF 1000 600 fixed 31\r\n": {Session: 255, Fixed: 31, From: 1000, Length: 600},
		"WORKER RELEASE 00000000000000ff 31 1000 1200\r\n":    {Session: 255, Fixed: 31, From: 1000, Release: true, Next: 1200},
	} {
		o, d := newOracle(), &fakeLessor{}
		w := newTape(t, New(Config{Backend: o, Lessor: d}))
		w.feed([]byte(say + "PING\r\n"))
		reply := leaseReply
		if want.Release {
			reply = "+OK\r\n"
		}
		if got := w.finish(o); got != reply+"+PONG\r\n" || len(d.asked) != 1 || d.asked[0].Session != want.Session || d.asked[0].Fixed != want.Fixed ||
			d.asked[0].From != want.From || d.asked[0].Length != want.Length || d.asked[0].Release != want.Release || d.asked[0].Next != want.Next {
			t.Errorf("%q: %q, asked %+v", say, got, d.asked)
		}
	}
}

func TestConn_WorkerRefusals(t *testing.T) {
	for say, want := range map[string]string{
		"WORKER LEASE ff 1000 600\r\n":                        "-ERR " + workerUsage + "\r\n",
		"WORKER LEASE 0000000000000000 1000 600\r\n":          "-ERR " + workerUsage + "\r\n",
		"WORKER LEASE 00000000000000ff -1 600\r\n":            "-ERR " + workerUsage + "\r\n",
		"WORKER LEASE 00000000000000ff 1 600 FIXED\r\n":       "-ERR " + workerUsage + "\r\n",
		"WORKER LEASE 00000000000000ff 1 600 FIXED 65536\r\n": "-ERR " + workerUsage + "\r\n",
		"WORKER RELEASE 00000000000000ff 1000 600\r\n":        "-ERR " + workerUsage + "\r\n",
		"WORKER LOSE 00000000000000ff 1000 600\r\n":           "-ERR " + workerUsage + "\r\n",
		"WORKER LEASE 00000000000000ff 1\r\n":                 "-ERR wrong number of arguments for 'worker' command\r\n",
	} {
		o, d := newOracle(), &fakeLessor{}
		w := newTape(t, New(Config{Backend: o, Lessor: d}))
		w.feed([]byte(say))
		if got := w.finish(o); got != want || len(d.asked) != 0 {
			t.Errorf("%q: got %q, want %q", say, got, want)
		}
	}
	o, d := newOracle(), &fakeLessor{err: &isotone.Error{Code: isotone.CodeNotLeader, Leader: "a:1", Message: "m"}}
	w := newTape(t, New(Config{Backend: o, Lessor: d}))
	w.feed([]byte("WORKER LEASE 00000000000000ff 1000 600\r\n"))
	if got := w.finish(o); got != "-MOVED 0 a:1\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestConn_WorkerAnswerForAClientThatLeft(t *testing.T) {
	o, d := newOracle(), &fakeLessor{later: true}
	w := newTape(t, New(Config{Backend: o, Lessor: d}))
	w.feed([]byte("WORKER LEASE 00000000000000ff 1000 600\r\n"))
	w.conn.Closed(nil, nil)
	d.answer()
}
