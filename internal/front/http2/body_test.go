package http2_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	xhttp2 "golang.org/x/net/http2"
)

// TestExchange_LargeBodiesBothWays: many windows of a body that is read slowly and sent back at once.
func TestExchange_LargeBodiesBothWays(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		buffer := make([]byte, 1000)
		for {
			n, err := r.Body.Read(buffer)
			if _, werr := w.Write(buffer[:n]); werr != nil {
				t.Error(werr)
			}
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				return
			}
		}
	})
	tr := transport(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			sent := pattern(300_000 + i)
			response := roundTrip(t, tr, http.MethodPost, "http://"+s.addr+"/echo", io.MultiReader(bytes.NewReader(sent)))
			defer response.Body.Close()
			got, err := io.ReadAll(response.Body)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
				t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
			}
		})
	}
	all.Wait()
}

// TestExchange_AnUnreadBodyDoesNotStarveOthers: what a handler has not read counts no more once it has returned.
func TestExchange_AnUnreadBodyDoesNotStarveOthers(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		}
	})
	tr := transport(t)
	for range 20 { // several windows of the connection
		response := roundTrip(t, tr, http.MethodPost, "http://"+s.addr+"/ignore", bytes.NewReader(pattern(60_000)))
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
	}
	response := roundTrip(t, tr, http.MethodPost, "http://"+s.addr+"/read", bytes.NewReader(pattern(200_000)))
	defer response.Body.Close()
	if b, _ := io.ReadAll(response.Body); string(b) != "200000 <nil>" {
		t.Errorf("%s", b)
	}
}

// TestExchange_ContinueIsAskedFor when the handler reads, and not before.
func TestExchange_ContinueIsAskedFor(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.Copy(w, r.Body)
		}
	})
	c := s.dial(t)
	fields := []string{":method", "POST", "expect", "100-continue"}
	c.headers(1, false, c.encode("/read", fields...))
	r := &reply{}
	for r.status == "" {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID == 1 {
			c.note(r, f)
		}
	}
	if r.status != "100" || r.ended {
		t.Fatalf("%+v", r)
	}
	_ = c.WriteData(1, true, []byte("body"))
	if got, _, err := c.read(1); err != nil || got[1].status != "200" || got[1].body != "body" {
		t.Errorf("%+v, %v", got[1], err)
	}
	c.headers(3, false, c.encode("/ignore", fields...))
	if got, _, err := c.read(3); err != nil || got[3].status != "200" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestExchange_PaddingUsesUpNoWindow: a client that pads its frames gets the padding back, too.
func TestExchange_PaddingUsesUpNoWindow(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	c := s.dial(t)
	c.headers(1, false, c.encode("/x", ":method", "POST"))
	const size, padding, frames = 100, 255, 500
	windows := map[uint32]int{0: 65535, 1: 65535}
	for sent := 0; sent < frames; {
		if min(windows[0], windows[1]) > size+padding {
			sent++
			_ = c.WriteDataPadded(1, sent == frames, make([]byte, size), make([]byte, padding))
			windows[0] -= 1 + size + padding
			windows[1] -= 1 + size + padding
			continue
		}
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *xhttp2.WindowUpdateFrame:
			windows[f.StreamID] += int(f.Increment)
		case *xhttp2.RSTStreamFrame:
			t.Fatalf("%v after %d frames, windows %v", f.ErrCode, sent, windows)
		}
	}
	if got, _, err := c.read(1); err != nil || got[1].body != fmt.Sprint(size*frames, nil) {
		t.Errorf("%+v, %v", got[1], err)
	}
}

// TestExchange_ABodyThatIsNotReadHoldsUpNobody: its window is a part of that of the connection.
func TestExchange_ABodyThatIsNotReadHoldsUpNobody(t *testing.T) {
	begun := make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stalled" {
			close(begun)
			<-r.Context().Done()
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	tr := transport(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stalled, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+"/stalled", io.MultiReader(bytes.NewReader(pattern(1<<20))))
	if err != nil {
		t.Fatal(err)
	}
	response := roundTrip(t, tr, http.MethodPost, "http://"+s.addr+"/x", bytes.NewReader(nil)) // so that the client has read our settings
	_ = response.Body.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if response, err := tr.RoundTrip(stalled); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-begun
	for range 3 {
		response := roundTrip(t, tr, http.MethodPost, "http://"+s.addr+"/read", bytes.NewReader(pattern(100_000)))
		b, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if string(b) != "100000 <nil>" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	cancel()
	<-ended
}
