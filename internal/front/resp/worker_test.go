package resp

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
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
	if r.List {
		r.Held = &front.WorkerList{Workers: []front.WorkerRecord{
			{Worker: 2, NodeID: 1, Session: "00000000000000aa", Slot: 3, Start: 1000, End: 1600},
			{Worker: 300, Session: "00000000000000bb", Fixed: true, Start: 1000, End: 1700, Ended: true, Revoked: true},
		}}
	}
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
		"WORKER LEASE 00000000000000ff 1\r\n":                 "-ERR " + workerUsage + "\r\n",
		"WORKER LEASE\r\n":                                    "-ERR " + workerUsage + "\r\n",
		"WORKER LIST all\r\n":                                 "-ERR " + workerUsage + "\r\n",
		"WORKER REVOKE\r\n":                                   "-ERR " + workerUsage + "\r\n",
		"WORKER REVOKE x\r\n":                                 "-ERR " + workerUsage + "\r\n",
		"WORKER REVOKE -1\r\n":                                "-ERR " + workerUsage + "\r\n",
		"WORKER REVOKE 65536\r\n":                             "-ERR " + workerUsage + "\r\n",
		"WORKER REVOKE 5 x\r\n":                               "-ERR " + workerUsage + "\r\n",
		"WORKER REVOKE 5 1 FORCE\r\n":                         "-ERR " + workerUsage + "\r\n",
		"WORKER\r\n":                                          "-ERR wrong number of arguments for 'worker' command\r\n",
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

func TestConn_WorkersAreListed(t *testing.T) {
	const (
		one = "$6\r\nworker\r\n:2\r\n$4\r\nnode\r\n:1\r\n$10\r\ngeneration\r\n:0\r\n$4\r\nslot\r\n:3\r\n$5\r\nstart\r\n:1000\r\n$3\r\nend\r\n:1600\r\n" +
			"$5\r\nfixed\r\n:0\r\n$5\r\nended\r\n:0\r\n$7\r\nrevoked\r\n:0\r\n$7\r\nsession\r\n$16\r\n00000000000000aa\r\n"
		two = "$6\r\nworker\r\n:300\r\n$4\r\nnode\r\n:0\r\n$10\r\ngeneration\r\n:0\r\n$4\r\nslot\r\n:0\r\n$5\r\nstart\r\n:1000\r\n$3\r\nend\r\n:1700\r\n" +
			"$5\r\nfixed\r\n:1\r\n$5\r\nended\r\n:1\r\n$7\r\nrevoked\r\n:1\r\n$7\r\nsession\r\n$16\r\n00000000000000bb\r\n"
	)
	o, d := newOracle(), &fakeLessor{later: true}
	w := newTape(t, New(Config{Backend: o, Lessor: d}))
	w.feed([]byte("worker list\r\nPING\r\n"))
	d.answer()
	w.feed(nil)
	if got, want := w.finish(o), "*2\r\n*20\r\n"+one+"*20\r\n"+two+"+PONG\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConn_WorkersAreRevoked(t *testing.T) {
	for say, from := range map[string]uint64{"WORKER REVOKE 7\r\n": 0, "worker revoke 7 1000\r\n": 1000} {
		o, d := newOracle(), &fakeLessor{}
		w := newTape(t, New(Config{Backend: o, Lessor: d}))
		w.feed([]byte(say))
		if got := w.finish(o); got != fmt.Sprintf(":%d\r\n", from) || len(d.asked) != 1 || !d.asked[0].Revoke || d.asked[0].Fixed != 7 || d.asked[0].From != from {
			t.Errorf("%q: got %q, asked %+v", say, got, d.asked)
		}
	}
	o, d := newOracle(), &fakeLessor{err: isotone.Errorf(isotone.CodeNotFound, "nobody holds worker 7")}
	w := newTape(t, New(Config{Backend: o, Lessor: d}))
	w.feed([]byte("WORKER REVOKE 7\r\n"))
	if got := w.finish(o); got != "-ERR nobody holds worker 7\r\n" {
		t.Errorf("got %q", got)
	}
}

// TestConn_RevocationsAreInTheLog, carried out or not; lists are not, as nothing changes.
func TestConn_RevocationsAreInTheLog(t *testing.T) {
	var log bytes.Buffer
	control, err := access.Open(access.Config{Setting: "ACL_FILE", Alone: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	o, d := newOracle(), &fakeLessor{}
	w := newTape(t, New(Config{Backend: o, Lessor: d}))
	session, err := control.Open(netip.MustParseAddr("127.0.0.1"), nil, access.ClientPool)
	if err != nil {
		t.Fatal(err)
	}
	w.conn.session = &session
	w.feed([]byte("WORKER LIST\r\nWORKER REVOKE 7\r\n"))
	d.err = isotone.Errorf(isotone.CodeNotFound, "nobody holds worker 8")
	w.feed([]byte("WORKER REVOKE 8\r\n"))
	w.finish(o)
	for _, want := range []string{`msg="audit: admin action" action="WORKER REVOKE 7" code=ok client=127.0.0.1`, `action="WORKER REVOKE 8" code=not_found`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "LIST") {
		t.Errorf("the log has a list:\n%s", log.String())
	}
}
