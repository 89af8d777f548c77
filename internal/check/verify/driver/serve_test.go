//go:build linux

package driver_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// harness is the other side of a driver in this process.
type harness struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *bufio.Scanner
	served chan error
}

func serve(t *testing.T, s driver.System) *harness {
	inRead, in := io.Pipe()
	out, outWrite := io.Pipe()
	h := &harness{t, in, bufio.NewScanner(out), make(chan error, 1)}
	go func() {
		h.served <- driver.Serve(inRead, outWrite, s)
		_, _ = inRead.Close(), outWrite.Close()
	}()
	return h
}

func (h *harness) send(format string, args ...any) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.in, format+"\n", args...); err != nil {
		h.t.Fatal(err)
	}
}

// expect checks how the next answer begins.
func (h *harness) expect(want string) {
	h.t.Helper()
	if !h.out.Scan() || !strings.HasPrefix(h.out.Text(), want) {
		h.t.Errorf("answered %q: want %q …", h.out.Text(), want)
	}
}

// end ends the input, and returns the error of the driver.
func (h *harness) end() error {
	_ = h.in.Close()
	for h.out.Scan() {
	}
	return await.Receive(h.t, "the end of the driver", h.served)
}

func (h *harness) connect() {
	h.t.Helper()
	h.send(`{"id":1,"do":"hello","protocol":1}`)
	h.expect(`{"id":1,"ok":{"protocol":1,"system":`)
	h.send(`{"id":2,"do":"connect","addresses":["a","b","c"]}`)
	h.expect(`{"id":2,"ok":{}}`)
}

func TestServe_ItAnswersRequests(t *testing.T) {
	h := serve(t, &counting{})
	h.connect()
	h.send(`{"id":3,"do":"ready","node":0,"timeout_ms":1000}`)
	h.expect(`{"id":3,"ok":{}}`)
	h.send(`{"id":4,"do":"ready","node":2,"timeout_ms":1000}`)
	h.expect(`{"id":4,"error":"unavailable","message":"never"}`)
	h.send(`{"id":5,"do":"ask","node":0,"count":3,"times":1,"timeout_ms":1000}`)
	h.expect(`{"id":5,"ok":{"calls":[{"first":"21267647932558653966460912964485513217","count":3,"began":`)
	h.send(`{"id":6,"do":"ask","node":1,"count":1,"times":9,"timeout_ms":1000}`)
	h.expect(`{"id":6,"ok":{"calls":[{"first":"21267647932558653966460912964485513220","count":1,"began":`)
	want := `,"failed":{"error":"malformed","message":"five \"\\\"\""}}}`
	if !strings.HasSuffix(h.out.Text(), want) || strings.Count(h.out.Text(), "first") != 2 {
		t.Errorf("%q: want two calls and %q", h.out.Text(), want)
	}
	if err := h.end(); err != nil {
		t.Error(err)
	}
}

func TestServe_ItRefusesWhatIsWrong(t *testing.T) {
	h := serve(t, &counting{})
	for request, want := range map[string]string{
		`"do":"fly"`:                                             `there is no request \"fly\"`,
		`"do":"plan","plan":{"dir":"/"}`:                         "plan before hello",
		`"do":"connect","addresses":["a"]`:                       "connect before hello",
		`"do":"hello","protocol":2`:                              "protocol 2: want 1",
		`"do":"hello","protocol":1,"options":{"colour":"green"}`: `there is no option \"colour\"`,
		`"do":"ready","timeout_ms":1`:                            "node 0 of 0",
	} {
		h.send(`{"id":7,%s}`, request)
		h.expect(`{"id":7,"error":"invalid","message":"` + want)
	}
	h.connect()
	for request, want := range map[string]string{
		`"do":"connect","addresses":["a"]`: "connect comes once",
		`"do":"plan"`:                      "plan has no plan",
		`"do":"ask","node":3,"count":1,"times":1,"timeout_ms":1`:    "node 3 of 3",
		`"do":"ask","node":-1,"count":1,"times":1,"timeout_ms":1`:   "node -1 of 3",
		`"do":"ask","client":-1,"count":1,"times":1,"timeout_ms":1`: "client -1",
		`"do":"ask","count":101,"times":1,"timeout_ms":1`:           "count 101: want 1 to 100",
		`"do":"ask","times":1,"timeout_ms":1`:                       "count 0: want 1 to 100",
		`"do":"ask","count":1,"timeout_ms":1`:                       "times 0: want 1 to ",
		`"do":"ask","count":1,"times":1000000,"timeout_ms":1`:       "times 1000000: want 1 to ",
		`"do":"ask","count":1,"times":1`:                            "timeout_ms 0: want 1 to 60000",
		`"do":"ready","node":0,"timeout_ms":9000000`:                "timeout_ms 9000000: want 1 to 60000",
		`"do":"remove","node":0,"start":{},"timeout_ms":1`:          "remove: want it of a system whose members can be changed",
		`"do":"add","node":0,"timeout_ms":1`:                        "add: want it of a system whose members can be changed",
	} {
		h.send(`{"id":7,%s}`, request)
		h.expect(`{"id":7,"error":"invalid","message":"` + want)
	}
	if err := h.end(); err != nil {
		t.Error(err)
	}
}

// waiting answers a call of a node when it is told.
type waiting struct {
	counting
	asked  chan int
	answer [2]chan struct{}
}

func (w *waiting) Ask(node int, count uint64, deadline time.Time) (isotone.Timestamp, error) {
	w.asked <- node
	<-w.answer[node]
	return w.counting.Ask(node, count, deadline)
}

func TestServe_ClientsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{asked: make(chan int, 9), answer: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
		h := serve(t, w)
		h.connect()
		h.send(`{"id":3,"do":"ask","client":4,"node":0,"count":1,"times":5,"timeout_ms":1000}`)
		await.Receive(t, "the first client's call", w.asked)
		h.send(`{"id":4,"do":"ask","client":5,"node":1,"count":1,"times":1,"timeout_ms":1000}`)
		await.Receive(t, "the second client's call", w.asked)
		h.send(`{"id":5,"do":"ask","client":4,"node":1,"count":1,"times":1,"timeout_ms":1000}`)
		h.expect(`{"id":5,"error":"invalid","message":"client 4, node 1: a request is under way already`)
		w.answer[1] <- struct{}{}
		h.expect(`{"id":4,"ok":{"calls":[{`)
		w.answer[0] <- struct{}{}
		await.Receive(t, "the first client's second call", w.asked)

		// The end of the input ends a request after the call that is under way.
		_ = h.in.Close()
		synctest.Wait()
		close(w.answer[0])
		h.expect(`{"id":3,"ok":{"calls":[{`)
		if n := strings.Count(h.out.Text(), "first"); n != 1 {
			t.Errorf("%d calls were answered: want the one before the end of the input: %s", n, h.out.Text())
		}
		if err := h.end(); err != nil {
			t.Error(err)
		}
	})
}

// slow takes 30 ms for each call, on the clock of the test's bubble.
type slow struct{ counting }

func (s *slow) Ask(node int, count uint64, deadline time.Time) (isotone.Timestamp, error) {
	<-time.After(30 * time.Millisecond)
	return s.counting.Ask(node, count, deadline)
}

func TestServe_SlowCallsAreAnsweredBeforeAllWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t, &slow{})
		h.connect()
		h.send(`{"id":3,"do":"ask","node":0,"count":1,"times":4096,"timeout_ms":1000}`)
		h.expect(`{"id":3,"ok":{"calls":[{`)
		if n := strings.Count(h.out.Text(), "first"); n != 4 || strings.Contains(h.out.Text(), "failed") {
			t.Errorf("%d calls of 30 ms in an answer: want those that began within 100 ms: %s", n, h.out.Text())
		}
		if err := h.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestServe_InputThatIsNoRequestEndsIt(t *testing.T) {
	for input, want := range map[string]string{
		"hello\n":                        `the input has "hello", which is no JSON of a request`,
		`{"id":1`:                        `the input has "{\"id\":1" without the end of a line`,
		strings.Repeat("x", 5000000):     "the input has a line of more than 4194304 bytes",
		"{\"id\":true,\"do\":\"ask\"}\n": "which is no JSON of a request",
	} {
		err := driver.Serve(strings.NewReader(input), io.Discard, &counting{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v: want %q", input, err, want)
		}
	}
}
