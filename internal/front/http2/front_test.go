package http2_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// TestHot_StreamsThatWaitShareABatch: what has arrived together goes to the oracle together, and each stream gets
// what it asked for.
func TestHot_StreamsThatWaitShareABatch(t *testing.T) {
	s := start(t, nil)
	s.set(func() { s.held = true })
	c := s.dial(t)
	ids := []uint32{}
	c.together(func() {
		for i := range 100 {
			ids = append(ids, uint32(2*i+1))
			c.ask(uint32(2*i+1), fmt.Sprintf("/timestamp?n=%d&format=range", i+1))
		}
	})
	await.Until(t, "all are submitted", func() bool { n, _ := s.submitted(); return n == 100 })
	s.release()
	got, _, err := c.read(ids...)
	if err != nil {
		t.Fatal(err)
	}
	first := uint64(0)
	for i, id := range ids {
		r := got[id]
		want := fmt.Sprintf("%016x%016x%08x", uint64(epoch), first, i+1)
		if r.status != "200" || fmt.Sprintf("%x", r.body)[:32+8] == "" || !strings.HasPrefix(fmt.Sprintf("%x", r.body), want[:32]) || r.fields["content-length"] != strconv.Itoa(len(r.body)) {
			t.Fatalf("stream %d: %+v, want %s", id, r, want)
		}
		first += uint64(i + 1)
	}
	if requests, batches := s.submitted(); batches > 3 {
		t.Errorf("%d requests in %d batches", requests, batches)
	}
}

// TestHot_EachKindIsAnsweredInTheLoop: none comes to the handler.
func TestHot_EachKindIsAnsweredInTheLoop(t *testing.T) {
	s := start(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is not hot", r.RequestURI) })
	s.set(func() {
		s.document = []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: \"e\"\r\nContent-Type: application/json\r\n\r\n{}")
	})
	c := s.dial(t)
	for i, path := range []string{
		"/timestamp", "/timestamp?n=5", "/timestamp?format=json", "/timestamp?format=u64", "/timestamp?format=range&n=9", "/api/snowflake", "/api/snowflake?n=3&format=json",
		"/live/doc", "/timestamp", "/api/snowflake", "/interval",
	} {
		id := uint32(2*i + 1)
		c.ask(id, path, "user-agent", "test", "accept-encoding", "gzip")
		got, _, err := c.read(id)
		want := "200"
		if path == "/interval" {
			want = "404" // there is no clock
		}
		if r := got[id]; err != nil || r.status != want || r.fields["date"] == "" && path != "/live/doc" {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
}

// TestHot_AnErrorOfTheBackendIsTold to each stream.
func TestHot_AnErrorOfTheBackendIsTold(t *testing.T) {
	s := start(t, nil)
	s.set(func() { s.err = errNotLeader })
	c := s.dial(t)
	c.ask(1, "/timestamp?n=3")
	c.ask(3, "/timestamp?n=4")
	got, _, err := c.read(1, 3)
	for id, n := range map[uint32]string{1: "3", 3: "4"} {
		r := got[id]
		if err != nil || r.status != "409" || r.fields["location"] != "http://10.0.0.1:8081/timestamp?n="+n || !strings.Contains(r.body, "not_leader") {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestHot_ATakenBackRequestIsNotAnswered, and others of its batch are.
func TestHot_ATakenBackRequestIsNotAnswered(t *testing.T) {
	s := start(t, nil)
	s.set(func() { s.held = true })
	c := s.dial(t)
	for _, id := range []uint32{1, 3, 5} {
		c.ask(id, "/timestamp")
	}
	_ = c.WriteRSTStream(3, xhttp2.ErrCodeCancel)
	_ = c.WritePing(false, [8]byte{1})
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := f.(*xhttp2.PingFrame); ok && p.IsAck() {
			break
		}
	}
	s.release()
	got, _, err := c.read(1, 5)
	if err != nil || got[1].status != "200" || got[5].status != "200" {
		t.Fatalf("%v %v", got, err)
	}
	c.ask(7, "/timestamp")
	seen := map[uint32]bool{}
	for !seen[7] {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		seen[f.Header().StreamID] = true
	}
	if seen[3] {
		t.Error("the stream was answered")
	}
}

// TestHot_NothingFollowsAReset for an error of the client, also if it has enlarged the window of the stream before.
func TestHot_NothingFollowsAReset(t *testing.T) {
	for name, wrong := range map[string]func(c *client){
		"data":        func(c *client) { _ = c.WriteData(1, true, []byte("x")) },
		"a priority":  func(c *client) { _ = c.WritePriority(1, xhttp2.PriorityParam{StreamDep: 1}) },
		"of a window": func(c *client) { _ = c.WriteWindowUpdate(1, 1<<31-1) },
	} {
		s := start(t, nil)
		s.set(func() { s.held = true })
		c := s.dial(t)
		c.ask(1, "/timestamp")
		await.Until(t, "it is submitted", func() bool { n, _ := s.submitted(); return n == 1 })
		_ = c.WriteWindowUpdate(1, 1)
		wrong(c)
		if got, _, err := c.read(1); err != nil || got[1].status != "" || got[1].reset == 0 {
			t.Errorf("%s: %+v, %v", name, got[1], err)
		}
		s.release()
		c.ask(3, "/timestamp")
		for id := uint32(0); id != 3; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if id = f.Header().StreamID; id == 1 {
				t.Errorf("%s: %v", name, f)
			}
		}
	}
}

// TestWindow_AnAnswerWaitsForIt, whichever window is small, and whenever it grows.
func TestWindow_AnAnswerWaitsForIt(t *testing.T) {
	for name, grow := range map[string]func(c *client){
		"before the answer": func(c *client) { _ = c.WriteWindowUpdate(1, 100) },
		"by a setting":      func(c *client) { _ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 50}) },
		"in steps": func(c *client) {
			for range 16 {
				_ = c.WriteWindowUpdate(1, 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789abcdef") })
			for _, path := range []string{"/timestamp", "/cold"} {
				c := s.dial(t)
				_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
				c.ask(1, path)
				grow(c)
				got, _, err := c.read(1)
				if err != nil || got[1].status != "200" || len(got[1].body) != 16 {
					t.Errorf("%s: %+v, %v", path, got[1], err)
				}
			}
		})
	}
}

// TestWindow_AStreamCountsOnce, also if its window is enlarged before it is answered, as some clients do for each request.
func TestWindow_AStreamCountsOnce(t *testing.T) {
	s := start(t, nil, func(c *http2.Config, _ *loop.Limits) { c.Limits.StreamsMax = 10 })
	s.set(func() { s.held = true })
	c := s.dial(t)
	ids := []uint32{}
	for i := range 10 {
		id := uint32(2*i + 1)
		ids = append(ids, id)
		c.ask(id, "/timestamp")
		_ = c.WriteWindowUpdate(id, 1)
	}
	c.ask(21, "/timestamp")
	if got, _, err := c.read(21); err != nil || got[21].reset != xhttp2.ErrCodeRefusedStream {
		t.Errorf("%+v, %v", got[21], err)
	}
	s.release()
	got, _, err := c.read(ids...)
	for _, id := range ids {
		if err != nil || got[id].status != "200" {
			t.Errorf("stream %d: %+v, %v", id, got[id], err)
		}
	}
}

// TestWindow_AnAnswerFromTheLoopWaits: the window shrinks after the request.
func TestWindow_AnAnswerFromTheLoopWaits(t *testing.T) {
	s := start(t, nil)
	s.set(func() { s.held = true })
	c := s.dial(t)
	c.ask(1, "/timestamp?n=64")
	c.ask(3, "/timestamp?n=64")
	await.Until(t, "both are submitted", func() bool { n, _ := s.submitted(); return n == 2 })
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1000})
	_ = c.WritePing(false, [8]byte{})
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := f.(*xhttp2.PingFrame); ok {
			break
		}
	}
	s.release()
	_ = c.WriteWindowUpdate(3, 24)
	got, _, err := c.read(3)
	if err != nil || len(got[3].body) != 1024 {
		t.Errorf("%d bytes, %v", len(got[3].body), err)
	}
	_ = c.WriteWindowUpdate(1, 24)
	if got, _, err = c.read(1); err != nil || len(got[1].body) != 24 { // the first 1000 bytes came before
		t.Errorf("%d bytes, %v", len(got[1].body), err)
	}
}

// TestWindow_OneThatNeverComesEndsTheStream only.
func TestWindow_OneThatNeverComesEndsTheStream(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/timestamp", "/cold"} {
		s := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789abcdef") },
			func(c *http2.Config, _ *loop.Limits) { c.Limits.WriteTimeout = 50 * time.Millisecond })
		c := s.dial(t)
		_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
		c.ask(1, path)
		got, _, err := c.read(1)
		if err != nil || got[1].ended || got[1].reset == 0 {
			t.Errorf("%s: %+v, %v", path, got[1], err)
		}
		c.ask(3, path)
		_ = c.WriteWindowUpdate(3, 16)
		if got, _, err = c.read(3); err != nil || got[3].status != "200" || len(got[3].body) != 16 {
			t.Errorf("%s afterwards: %+v, %v", path, got[3], err)
		}
	}
}

// TestWindow_ADeadlineThatPassesAsTheHandlerEnds ends the stream as well.
func TestWindow_ADeadlineThatPassesAsTheHandlerEnds(t *testing.T) {
	t.Parallel()
	begun, busy, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var s *site
	s = start(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-busy
		_, _ = io.WriteString(w, "0123456789abcdef")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now())
		await.Until(t, "the deadline has passed", func() bool { return s.host.Posted() > 0 }) // the loop is busy
		go func() { s.front.Wait(); close(end) }()
	})
	c := s.dial(t)
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	c.ask(1, "/x")
	<-begun
	s.host.Post(func() { close(busy); <-end })
	if got, _, err := c.read(1); err != nil || got[1].reset == 0 {
		t.Errorf("%+v, %v", got[1], err)
	}
}

// TestDrain_IsToldWhileIdle, and requests are still answered.
func TestDrain_IsToldWhileIdle(t *testing.T) {
	s := start(t, nil)
	c := s.dial(t)
	c.ask(1, "/timestamp")
	if _, _, err := c.read(1); err != nil {
		t.Fatal(err)
	}
	s.host.Call(s.front.Drain)
	for told := false; !told; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*xhttp2.GoAwayFrame); ok {
			if told = g.ErrCode == xhttp2.ErrCodeNo && g.LastStreamID == 1<<31-1; !told {
				t.Fatal(g)
			}
		}
	}
	c.ask(3, "/timestamp")
	if got, _, err := c.read(3); err != nil || got[3].status != "200" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestStop_AnswersWhatRuns and closes idle connections at once.
func TestStop_AnswersWhatRuns(t *testing.T) {
	running, end := make(chan struct{}), make(chan struct{})
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		close(running)
		<-end
		_, _ = io.WriteString(w, "done")
	})
	idle, busy := s.dial(t), s.dial(t)
	idle.ask(1, "/timestamp")
	if _, _, err := idle.read(1); err != nil {
		t.Fatal(err)
	}
	s.set(func() { s.held = true })
	busy.ask(1, "/timestamp")
	busy.ask(3, "/cold")
	<-running
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		rig.StopServing(t.Context(), s.host)
	}()
	idle.wantGone(xhttp2.ErrCodeNo)
	busy.ask(5, "/timestamp") // too late
	s.release()
	close(end)
	got, bye, err := busy.read(1, 3)
	if err != nil || got[1].status != "200" || got[3].body != "done" || bye == nil || bye.LastStreamID != 3 {
		t.Errorf("%v, %v, %v", got, bye, err)
	}
	<-stopped
}

// TestIdle_EndsWithGoAway: a client knows that its next request was not read.
func TestIdle_EndsWithGoAway(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(_ *http2.Config, l *loop.Limits) { l.IdleTimeout = time.Millisecond })
	c := s.dial(t)
	c.ask(1, "/timestamp")
	if got, _, err := c.read(1); err != nil || got[1].status != "200" {
		t.Errorf("%+v, %v", got[1], err)
	}
	c.wantGone(xhttp2.ErrCodeNo)
}

// TestPartial_AHeaderBlockHasToEnd, also if its frames come one by one, and beside a stream that goes on.
func TestPartial_AHeaderBlockHasToEnd(t *testing.T) {
	t.Parallel()
	s := start(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(_ *http2.Config, l *loop.Limits) { l.PartialTimeout = 100 * time.Millisecond })
	c := s.dial(t)
	c.ask(1, "/endless")
	_ = c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: c.encode("/")})
	await.Until(t, "the connection is closed", func() bool { return s.front.Conns() == 0 })
}

// TestIdle_AStreamKeepsTheConnection for as long as it lasts.
func TestIdle_AStreamKeepsTheConnection(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-end
		_, _ = io.WriteString(w, "late")
	}, func(_ *http2.Config, l *loop.Limits) { l.IdleTimeout = time.Millisecond })
	c, other := s.dial(t), s.dial(t)
	c.ask(1, "/cold")
	<-begun
	other.wantGone(xhttp2.ErrCodeNo) // a sweep has looked at all
	close(end)
	if got, _, err := c.read(1); err != nil || got[1].body != "late" {
		t.Errorf("%+v, %v", got[1], err)
	}
}
