package http2_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// TestAbuse_EndsTheConnection with the code that says why, and costs others nothing.
func TestAbuse_EndsTheConnection(t *testing.T) {
	many := func(c *client, n int, say func(i int)) {
		for i := range n {
			say(i)
		}
	}
	for name, tt := range map[string]struct {
		code xhttp2.ErrCode
		say  func(c *client)
	}{
		"pings": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(int) { _ = c.WritePing(false, [8]byte{}) })
		}},
		"settings": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(int) { _ = c.WriteSettings() })
		}},
		"settings in one frame": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			_ = c.WriteSettings(make([]xhttp2.Setting, 2500)...)
		}},
		"priorities": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(int) { _ = c.WritePriority(1, xhttp2.PriorityParam{StreamDep: 3}) })
		}},
		"unknown frames": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(int) { _ = c.WriteRawFrame(0x42, 0, 0, nil) })
		}},
		"windows": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(int) { _ = c.WriteWindowUpdate(0, 1) })
		}},
		"empty data": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			c.headers(1, false, c.encode("/read", ":method", "POST"))
			many(c, 5000, func(int) { _ = c.WriteData(1, false, nil) })
		}},
		"resets": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(i int) {
				c.ask(uint32(2*i+1), "/timestamp")
				_ = c.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
			})
		}},
		"resets of slow requests": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			many(c, 5000, func(i int) {
				c.ask(uint32(2*i+1), "/slow")
				_ = c.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
			})
		}},
		"continuations": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			_ = c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode("/"), EndStream: true})
			many(c, 5000, func(int) { _ = c.WriteContinuation(1, false, nil) })
		}},
		"a long block": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			_ = c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode("/"), EndStream: true})
			many(c, 10, func(int) { _ = c.WriteContinuation(1, false, make([]byte, 16<<10)) })
		}},
		"a long string": {xhttp2.ErrCodeEnhanceYourCalm, func(c *client) {
			c.headers(1, true, append(c.encode("/"), "\x00\x01x\x7f\xff\xff\xff\x03"...))
		}},
		"a large frame":             {xhttp2.ErrCodeFrameSize, func(c *client) { c.send("\x00\x40\x01\x00\x00\x00\x00\x00\x01") }},
		"a wrong index":             {xhttp2.ErrCodeCompression, func(c *client) { c.headers(1, true, []byte{0xff, 0xff, 0x01}) }},
		"a table that is too large": {xhttp2.ErrCodeCompression, func(c *client) { c.headers(1, true, []byte{0x3f, 0xff, 0xff, 0x7f}) }},
		"a stream of the server":    {xhttp2.ErrCodeProtocol, func(c *client) { c.ask(2, "/") }},
		"a stream again":            {xhttp2.ErrCodeProtocol, func(c *client) { c.ask(5, "/"); c.ask(3, "/") }},
		"a push":                    {xhttp2.ErrCodeProtocol, func(c *client) { _ = c.WritePushPromise(xhttp2.PushPromiseParam{StreamID: 1, PromiseID: 2}) }},
		"an interrupted block": {xhttp2.ErrCodeProtocol, func(c *client) {
			_ = c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode("/")})
			c.ask(3, "/")
		}},
		"a block never begun":        {xhttp2.ErrCodeProtocol, func(c *client) { _ = c.WriteContinuation(1, true, nil) }},
		"data of no stream":          {xhttp2.ErrCodeProtocol, func(c *client) { _ = c.WriteData(7, true, nil) }},
		"a reset of no stream":       {xhttp2.ErrCodeProtocol, func(c *client) { _ = c.WriteRSTStream(7, xhttp2.ErrCodeCancel) }},
		"padding beyond the frame":   {xhttp2.ErrCodeProtocol, func(c *client) { _ = c.WriteRawFrame(xhttp2.FrameHeaders, xhttp2.FlagHeadersPadded, 1, []byte{9, 1}) }},
		"a window that is too large": {xhttp2.ErrCodeFlowControl, func(c *client) { _ = c.WriteWindowUpdate(0, 1<<31-1) }},
		"a window of nothing":        {xhttp2.ErrCodeProtocol, func(c *client) { c.send("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00") }},
		"a setting out of range": {xhttp2.ErrCodeFlowControl, func(c *client) {
			_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << 31})
		}},
		"more than the window": {xhttp2.ErrCodeFlowControl, func(c *client) {
			c.headers(1, false, c.encode("/slow", ":method", "POST"))
			many(c, 10, func(int) { _ = c.WriteData(1, false, make([]byte, 16<<10)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/slow":
					<-r.Context().Done()
				case "/read":
					_, _ = r.Body.Read(make([]byte, 1))
				}
			})
			s.set(func() { s.held = strings.HasPrefix(name, "resets") })
			c, other := s.dial(t), s.dial(t)
			c.mayEnd = true // before all is said
			said := make(chan struct{})
			go func() {
				defer close(said)
				tt.say(c)
			}()
			c.wantGone(tt.code)
			await.Until(t, "the connection is closed", func() bool { return s.front.Conns() == 1 })
			_ = c.Conn.Close()
			await.Receive(t, "the client says nothing more", said)
			s.release()
			other.ask(1, "/timestamp")
			if got, _, err := other.read(1); err != nil || got[1].status != "200" {
				t.Errorf("another client: %+v, %v", got[1], err)
			}
		})
	}
}

// TestAbuse_FlowOfAStream: a stream beyond its window ends, the connection does not.
func TestAbuse_FlowOfAStream(t *testing.T) {
	s := start(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := s.dial(t)
	c.headers(1, false, c.encode("/slow", ":method", "POST", "content-length", "10"))
	_ = c.WriteData(1, false, make([]byte, 11))
	if got, _, err := c.read(1); err != nil || got[1].reset != xhttp2.ErrCodeProtocol {
		t.Errorf("%+v, %v", got[1], err)
	}
	c.ask(3, "/timestamp")
	_ = c.WriteData(3, true, nil) // after its end
	if got, _, err := c.read(3); err != nil || got[3].reset == 0 && got[3].status != "200" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestAbuse_TooManyFieldsAreAnsweredWith431, and the table of the connection stays right.
func TestAbuse_TooManyFieldsAreAnsweredWith431(t *testing.T) {
	s := start(t, nil)
	c := s.dial(t)
	fields := []string{}
	for range 30 {
		fields = append(fields, "x-a", strings.Repeat("a", 900))
	}
	c.ask(1, "/timestamp", fields...)
	c.ask(3, "/timestamp", "x-known", "1")
	got, _, err := c.read(1, 3)
	if err != nil || got[1].status != "431" || got[1].body == "" || got[3].status != "404" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAbuse_ABombOfReferences: a small block that stands for a large request is refused as one that is too long.
func TestAbuse_ABombOfReferences(t *testing.T) {
	s := start(t, nil)
	c := s.dial(t)
	c.ask(1, "/timestamp", "x-a", strings.Repeat("a", 3000))
	block := append(c.encode("/timestamp"), strings.Repeat("\xbe", 8000)...) // the newest entry of the table
	c.headers(3, true, block)
	got, _, err := c.read(1, 3)
	if err != nil || got[3].status != "431" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestAbuse_AnswersThatWaitAreBounded: requests with too many fields count as streams while their answers wait for a window.
func TestAbuse_AnswersThatWaitAreBounded(t *testing.T) {
	s := start(t, nil, func(c *http2.Config, _ *loop.Limits) { c.Limits.StreamsMax = 10 })
	c := s.dial(t)
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	block := append(c.encode("/timestamp", "x-a", strings.Repeat("a", 3000)), strings.Repeat("\xbe", 10)...)
	c.headers(1, true, block)
	block = append(c.encode("/timestamp"), strings.Repeat("\xbe", 10)...)
	for i := range 20 {
		c.headers(uint32(2*i+3), true, block)
	}
	if got, _, err := c.read(41); err != nil || got[41].reset != xhttp2.ErrCodeRefusedStream {
		t.Errorf("%+v, %v", got[41], err)
	}
}

// TestAbuse_StreamsAreBounded, those of handlers that go on after a reset among them.
func TestAbuse_StreamsAreBounded(t *testing.T) {
	var running, most atomic.Int64
	end := make(chan struct{})
	s := start(t, func(http.ResponseWriter, *http.Request) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-end
		running.Add(-1)
	}, func(c *http2.Config, _ *loop.Limits) { c.Limits.StreamsMax = 10 })
	c := s.dial(t)
	for i := range 50 {
		c.ask(uint32(2*i+1), "/slow")
		_ = c.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
	}
	c.ask(201, "/slow")
	got, _, err := c.read(201)
	if err != nil || got[201].reset != xhttp2.ErrCodeRefusedStream {
		t.Errorf("%+v, %v", got[201], err)
	}
	if n := most.Load(); n > 10 {
		t.Errorf("%d handlers at once", n)
	}
	close(end)
	id := uint32(201)
	await.Until(t, "all have ended", func() bool { // the front knows it a little later than the handlers
		id += 2
		c.ask(id, "/timestamp")
		got, _, err := c.read(id)
		if err != nil {
			t.Fatal(err)
		}
		return got[id].status == "200"
	})
}

// TestAbuse_ASlowReaderHoldsLittle: what is written for a client that does not read is bounded.
func TestAbuse_ASlowReaderHoldsLittle(t *testing.T) {
	var written, ended atomic.Int64
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		defer ended.Add(1)
		for {
			n, err := w.Write(pattern(10_000))
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}, func(c *http2.Config, _ *loop.Limits) { c.Limits.WriteTimeout = 200 * time.Millisecond })
	c := s.dial(t)
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = c.WriteWindowUpdate(0, 1<<31-1-65535)
	for i := range 20 {
		c.ask(uint32(2*i+1), "/endless")
	}
	await.Until(t, "the deadline of all handlers has passed", func() bool { return ended.Load() == 20 })
	if n := written.Load(); n > 20<<20 { // the system's buffers included
		t.Errorf("%d bytes", n)
	}
}

// TestRefusing_LeavesTheHotRequests: a connection may have these only, and the first other ends it.
func TestRefusing_LeavesTheHotRequests(t *testing.T) {
	s := start(t, func(http.ResponseWriter, *http.Request) { t.Error("served") }, func(c *http2.Config, _ *loop.Limits) {
		c.Refusing = func(netip.Addr) error { return context.Canceled }
	})
	c := s.dial(t)
	c.ask(1, "/timestamp")
	if got, _, err := c.read(1); err != nil || got[1].status != "200" {
		t.Errorf("%+v, %v", got[1], err)
	}
	c.ask(3, "/cold")
	c.wantGone(xhttp2.ErrCodeEnhanceYourCalm)
}

// TestRefusing_AnswersWhatWaits, although the body of the request that is refused follows.
func TestRefusing_AnswersWhatWaits(t *testing.T) {
	s := start(t, nil, func(c *http2.Config, _ *loop.Limits) { c.Refusing = func(netip.Addr) error { return context.Canceled } })
	s.set(func() { s.held = true })
	c := s.dial(t)
	c.ask(1, "/timestamp")
	c.headers(3, false, c.encode("/cold", ":method", "POST"))
	_ = c.WriteData(3, true, []byte("x"))
	_ = c.WritePing(false, [8]byte{1})
	for answered := false; !answered; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*xhttp2.GoAwayFrame); ok && (g.ErrCode != xhttp2.ErrCodeEnhanceYourCalm || g.LastStreamID >= 3) {
			t.Fatal(g)
		}
		_, answered = f.(*xhttp2.PingFrame)
	}
	s.release()
	if got, _, err := c.read(1); err != nil || got[1].status != "200" {
		t.Errorf("%+v, %v", got[1], err)
	}
}

// TestRefusing_ACallThatIsNotTheNewestStream: later ones are still answered, and the client is not told to repeat them.
func TestRefusing_ACallThatIsNotTheNewestStream(t *testing.T) {
	s := start(t, nil, func(c *http2.Config, _ *loop.Limits) { c.Refusing = func(netip.Addr) error { return context.Canceled } })
	s.set(func() { s.held = true })
	c := s.dial(t)
	c.begin(1, grpc.PathTimestampsGet, grpc.ContentType)
	c.call(3, grpc.PathTimestampsGet, framed(""), 1)
	c.data(1, true, "no frame")
	_ = c.WriteWindowUpdate(3, 1)
	for refused := false; !refused; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*xhttp2.GoAwayFrame); ok && (g.ErrCode != xhttp2.ErrCodeEnhanceYourCalm || g.LastStreamID < 3) {
			t.Fatal(g)
		}
		r, ok := f.(*xhttp2.RSTStreamFrame)
		refused = ok && r.StreamID == 1 && r.ErrCode == xhttp2.ErrCodeRefusedStream
	}
	s.release()
	if got, _, err := c.read(3); err != nil || got[3].trailers["grpc-status"] != "0" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestAccess_EachStreamSpeaksForItself: streams of several users, and of nobody, on one connection.
func TestAccess_EachStreamSpeaksForItself(t *testing.T) {
	none := access.Roles(0)
	users := rig.NewUserList(t, `{"users": {"stamps": {"roles": ["timestamps"], "secrets": ["HASH"]}, "ids": {"roles": ["ids"], "secrets": ["HASH"]},
		"both": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]}}}`)
	control, err := access.Open(access.Config{File: users.File, Anonymous: &none})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		session := control.Request(netip.MustParseAddrPort(r.RemoteAddr).Addr(), nil, false)
		if credentials, ok := access.ParseAuthorization(r.Header.Get("Authorization")); ok {
			if session.Prove(r.Context(), credentials) != nil {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
		}
		needs := map[string]access.Roles{"/timestamp": access.Timestamps, "/api/snowflake": access.IDs}[r.URL.Path]
		if session.Require(needs) != nil {
			w.WriteHeader(http.StatusForbidden)
		}
	}, func(c *http2.Config, _ *loop.Limits) { c.Hot.IDs = nil })
	s.host.Call(func() { s.control = control })
	c := s.dial(t)
	id := uint32(1)
	for round := range 3 { // the first time credentials are checked by the handler, later in the loop
		want := map[uint32]string{}
		for user, roles := range map[string]string{"": "", "stamps": "t", "ids": "i", "both": "ti", "wrong": ""} {
			for path, role := range map[string]string{"/timestamp": "t", "/api/snowflake": "i"} {
				fields := []string{}
				if user != "" {
					fields = append(fields, "authorization", "Bearer "+user+"~"+rig.Secret)
				}
				want[id] = "403"
				if strings.Contains(roles, role) {
					want[id] = "200"
				} else if user == "wrong" {
					want[id] = "401"
				}
				c.ask(id, path, fields...)
				id += 2
			}
		}
		ids := []uint32{}
		for id := range want {
			ids = append(ids, id)
		}
		got, _, err := c.read(ids...)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range want {
			if got[id].status != want {
				t.Errorf("round %d, stream %d: %+v, want %s", round, id, got[id], want)
			}
		}
	}
	if n, _ := s.submitted(); n == 0 {
		t.Error("no request was answered in the loop")
	}
}

// TestAccess_ARequestCountsOnce, also if it finds only when it is answered that it is not for the loop.
func TestAccess_ARequestCountsOnce(t *testing.T) {
	users := rig.NewUserList(t, `{"users": {"few": {"roles": ["ids", "live"], "secrets": ["HASH"], "limits": {"requests": 1}}}}`)
	few, _ := access.ParseAuthorization("Bearer few~" + rig.Secret)
	for _, path := range []string{"/api/snowflake", "/live/unknown", grpc.PathIDsGet} {
		control, err := access.Open(access.Config{File: users.File, Now: func() time.Duration { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			session := control.Request(netip.MustParseAddrPort(r.RemoteAddr).Addr(), nil, false)
			if session.Prove(r.Context(), few) != nil || session.Take(1, 0) != nil {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		s.host.Call(func() { s.control = control })
		if err := control.Request(netip.MustParseAddr("127.0.0.1"), nil, false).Prove(t.Context(), few); err != nil {
			t.Fatal(err)
		}
		c := s.dial(t)
		if path == grpc.PathIDsGet {
			s.set(func() { s.err = errNotLeader }) // there are no IDs
			c.call(1, path, framed(""), 1, "authorization", "Bearer few~"+rig.Secret)
		} else {
			_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
			c.ask(1, path, "authorization", "Bearer few~"+rig.Secret)
		}
		if got, _, err := c.read(1); err != nil || got[1].status != "200" {
			t.Errorf("%s: %+v, %v", path, got[1], err)
		}
	}
}
