package http2_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// late is a handler that is known once its connection is.
type late struct{ loop.Handler }

// pair returns the two ends of a connection.
func pair(t testing.TB) (near, far net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]net.Conn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	return ends[0], ends[1]
}

// FuzzConn gives bytes that follow the preface to a connection, in two pieces, and checks what comes back: whole frames
// within the client's limits, at most one answer for each stream, none after its end, and GOAWAY as the last word if the connection failed.
func FuzzConn(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed, uint16(len(seed)/2))
	}
	l, err := loop.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Close() })
	o := &oracle{document: []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")}
	site := http2.New(http2.Config{
		Loop: l, Hot: http1.Config{Backend: o, IDs: o, Live: o.live}, Limits: http2.Limits{StreamsMax: 8},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, io.LimitReader(r.Body, 100))
			fmt.Fprint(w, n, err, r.Trailer)
		}),
	})
	f.Fuzz(func(t *testing.T, b []byte, split uint16) {
		near, far := pair(t)
		defer far.Close()
		read := make(chan []byte, 1)
		go func() {
			got, _ := io.ReadAll(far)
			read <- got
		}()
		h := &late{}
		at := min(int(split), len(b))
		c, err := l.Attach(near, append([]byte(xhttp2.ClientPreface), b[:at]...), loop.Limits{}, h)
		if err != nil {
			t.Fatal(err)
		}
		h.Handler = site.Open(c)
		turn(t, l)
		_, _ = far.Write(b[at:min(at+60<<10, len(b))])
		_ = far.(*net.UnixConn).CloseWrite()
		for i := 0; site.Conns() > 0; i++ {
			turn(t, l)
			if i == 10 {
				c.Abort(errors.New("over"))
			}
		}
		checkAnswers(t, <-read)
	})
}

func turn(t *testing.T, l *loop.Loop) {
	if err := l.Wait(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	l.Flush()
}

// checkAnswers checks what a front has sent. The last frame may be cut, as the connection may have been.
func checkAnswers(t *testing.T, b []byte) {
	framer := xhttp2.NewFramer(io.Discard, bytes.NewReader(b))
	framer.SetMaxReadFrameSize(16 << 10)
	decoder := hpack.NewDecoder(4096, nil)
	answered, ended := map[uint32]bool{}, map[uint32]bool{}
	for first := true; ; first = false {
		f, err := framer.ReadFrame()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return
		}
		if err != nil {
			t.Fatalf("%v after %q", err, b)
		}
		id := f.Header().StreamID
		if first != (f.Header().Type == xhttp2.FrameSettings && !f.Header().Flags.Has(xhttp2.FlagSettingsAck)) && f.Header().Type != xhttp2.FrameGoAway {
			t.Fatalf("%v comes first, or SETTINGS later", f)
		}
		switch f := f.(type) {
		case *xhttp2.HeadersFrame:
			fields := 0
			decoder.SetEmitFunc(func(h hpack.HeaderField) {
				if fields++; fields == 1 && h.Name != ":status" {
					t.Fatalf("the answer begins with %v", h)
				}
			})
			if _, err := decoder.Write(f.HeaderBlockFragment()); err != nil || answered[id] || ended[id] {
				t.Fatalf("%v, stream %d, answered %v, ended %v", err, id, answered[id], ended[id])
			}
			_ = decoder.Close()
			answered[id], ended[id] = true, f.StreamEnded()
		case *xhttp2.DataFrame:
			if !answered[id] || ended[id] {
				t.Fatalf("data on stream %d, answered %v, ended %v", id, answered[id], ended[id])
			}
			ended[id] = f.StreamEnded()
		}
	}
}

// seeds are conversations that keep the protocol, and some that do not.
func seeds(t testing.TB) [][]byte {
	var all [][]byte
	say := func(tell func(c *client)) {
		var b bytes.Buffer
		c := &client{t: t, Framer: xhttp2.NewFramer(&b, nil)}
		c.AllowIllegalWrites = true
		c.encoder = hpack.NewEncoder(&c.block)
		_ = c.WriteSettings()
		tell(c)
		all = append(all, b.Bytes())
	}
	say(func(c *client) { c.ask(1, "/timestamp"); c.ask(3, "/timestamp"); c.ask(5, "/api/snowflake?n=3") })
	say(func(c *client) { c.ask(1, "/live/doc"); c.ask(3, "/cold"); _ = c.WriteRSTStream(3, 8) })
	say(func(c *client) {
		c.headers(1, false, c.encode("/x", ":method", "POST", "content-length", "5"))
		_ = c.WriteDataPadded(1, true, []byte("hello"), make([]byte, 10))
	})
	say(func(c *client) {
		block := c.encode("/timestamp")
		_ = c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:5], EndStream: true})
		_ = c.WriteContinuation(1, true, block[5:])
	})
	say(func(c *client) {
		_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 3}, xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: 0})
		c.ask(1, "/timestamp")
		_ = c.WriteWindowUpdate(1, 20)
		_ = c.WriteWindowUpdate(0, 1000)
	})
	say(func(c *client) { _ = c.WritePing(false, [8]byte{1}); _ = c.WriteGoAway(0, 0, nil); c.ask(2, "/") })
	say(func(c *client) {
		_ = c.WritePriority(1, xhttp2.PriorityParam{StreamDep: 1})
		c.ask(1, "/timestamp", "te", "x")
	})
	say(func(c *client) {
		c.headers(1, false, c.encode("/x", ":method", "POST"))
		c.headers(1, true, c.encode("", ":method", "", ":scheme", "", ":authority", "", "x-t", "1"))
	})
	return all
}
