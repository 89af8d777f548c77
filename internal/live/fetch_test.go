package live

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// forgetful passes connections on until it has forgotten those that there are, as a load
// balancer does after a restart: then they are silent, and new ones work.
type forgetful struct {
	net.Listener
	to      string
	forgot  atomic.Bool
	running sync.WaitGroup
	mu      sync.Mutex
	open    []net.Conn
}

func (f *forgetful) run() {
	for {
		client, err := f.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.mu.Lock()
		f.open = append(f.open, client, server)
		f.mu.Unlock()
		late := f.forgot.Load()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			f.running.Go(func() {
				b := make([]byte, 4096)
				for {
					n, err := way[0].Read(b)
					if err != nil {
						return
					}
					if late || !f.forgot.Load() {
						_, _ = way[1].Write(b[:n])
					}
				}
			})
		}
	}
}

func (f *forgetful) end() {
	_ = f.Close()
	f.mu.Lock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// TestFetch_LeavesASilentConnection, whatever the version of HTTP, and does so long before
// TCP would.
func TestFetch_LeavesASilentConnection(t *testing.T) {
	t.Parallel()
	for _, second := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1") }))
		server.EnableHTTP2 = second
		server.StartTLS()
		t.Cleanup(server.Close)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		way := &forgetful{Listener: l, to: server.Listener.Addr().String()}
		way.running.Go(way.run)
		t.Cleanup(way.end)
		f := newFetch(&url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/"})
		t.Cleanup(f.close)
		f.transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		load := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := f.load(ctx, 1000)
			return err
		}
		if _, err := f.load(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		way.forgot.Store(true)
		for deadline := time.Now().Add(time.Minute); load() != nil; {
			if time.Now().After(deadline) {
				t.Fatalf("HTTP/2 %v: nothing comes for a minute", second)
			}
		}
	}
}

// TestSet_CloseDoesNotWaitForALoadThatHeedsNothing, as of a file on a file system that has
// gone away.
func TestSet_CloseDoesNotWaitForALoadThatHeedsNothing(t *testing.T) {
	begun, hung := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	s, err := New(Config{Sources: []Source{Func("x", func(context.Context) ([]byte, error) {
		begin()
		<-hung
		return nil, context.Canceled
	})}})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	s.Close() // or the test never ends
	close(hung)
	s.running.Wait()
}
