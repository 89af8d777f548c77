package grpc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
)

type idle struct{}

func (idle) Status() *front.Status { return &front.Status{} }
func (idle) Submit(*front.Batch)   {}

// opened is a response whose first write tells that its stream is open.
type opened struct {
	*httptest.ResponseRecorder
	first func()
}

func (o *opened) Write(b []byte) (int, error) {
	o.first()
	return o.ResponseRecorder.Write(b)
}

// TestStreams_OneAddressLeavesRoomForOthers: half of all streams.
func TestStreams_OneAddressLeavesRoomForOthers(t *testing.T) {
	const half = 2048
	control, err := access.Open(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	control.Share(access.ClientPool, 20_000)
	s := grpc.New(grpc.Config{Backend: idle{}, RequestTimeout: time.Minute, WriteTimeout: time.Minute})
	watch := func(ctx context.Context, addr string, first func()) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, grpc.PathHealthWatch, strings.NewReader("\x00\x00\x00\x00\x00"))
		w := &opened{ResponseRecorder: httptest.NewRecorder(), first: sync.OnceFunc(first)}
		_, err := s.Serve(w, r, control.Request(netip.MustParseAddr(addr), nil, false))
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	over, cancelOver := context.WithCancel(t.Context())
	cancelOver() // a stream that is let in ends at once
	try := func(addr string) error { return watch(over, addr, func() {}) }
	var open, ended sync.WaitGroup
	open.Add(half)
	for range half {
		ended.Go(func() { _ = watch(ctx, "192.0.2.1", open.Done) })
	}
	all := make(chan struct{})
	go func() { open.Wait(); close(all) }()
	await.Receive(t, "half of all streams", all)
	if err := try("192.0.2.1"); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("one more stream: %v", err)
	}
	if err := try("192.0.2.2"); err != nil {
		t.Errorf("another address: %v", err)
	}
	cancel()
	ended.Wait()
	if err := try("192.0.2.1"); err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}
