package rig

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// Serve runs the service that open returns in a loop of its own until the test ends, and returns the loop's host and its
// address.
func Serve(t testing.TB, limits loop.Limits, open func(l *loop.Loop) loop.Service) (h *loop.Host, addr string) {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h = loop.NewHost(l, loop.HostConfig{Work: noWork{}})
	h.Start()
	t.Cleanup(func() {
		h.Stop()
		if err := h.Err(); err != nil {
			t.Errorf("the loop: %v", err)
		}
	})
	if err := (loop.Hosts{h}).Serve(ln, limits, func(_ int, l *loop.Loop) loop.Service { return open(l) }); err != nil {
		t.Fatal(err)
	}
	return h, ln.Addr().String()
}

// StopServing ends a service as a server does.
func StopServing(ctx context.Context, h *loop.Host) { loop.Hosts{h}.StopServing(ctx) }

// noWork is the work of a loop that has only connections.
type noWork struct{}

func (noWork) Sleep() time.Duration { return time.Minute }
func (noWork) Turn()                {}
func (noWork) Flushed()             {}
func (noWork) Close()               {}

// InLoop has a backend that answers on any goroutine answer in a loop.
type InLoop struct {
	front.Backend
	Loop *loop.Loop
}

// Submit implements [front.Backend].
func (b *InLoop) Submit(batch *front.Batch) {
	done := batch.Done
	batch.Done = func(*front.Batch) {
		b.Loop.Post(func() { batch.Done = done; done(batch) })
	}
	b.Backend.Submit(batch)
}
