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

// TestStreams_OneAddressLeavesRoomForOthers: half of all streams.
func TestStreams_OneAddressLeavesRoomForOthers(t *testing.T) {
	const half = 2048
	control, err := access.Open(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	control.Share(access.ClientPool, 20_000)
	s := grpc.New(grpc.Config{Backend: idle{}, RequestTimeout: time.Minute, WriteTimeout: time.Minute})
	watch := func(ctx context.Context, addr string) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, grpc.PathHealthWatch, strings.NewReader("\x00\x00\x00\x00\x00"))
		_, err := s.Serve(httptest.NewRecorder(), r, control.Request(netip.MustParseAddr(addr), nil, false))
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	over, cancelOver := context.WithCancel(t.Context())
	cancelOver() // a stream that is let in ends at once
	var open sync.WaitGroup
	for range half {
		open.Go(func() { _ = watch(ctx, "192.0.2.1") })
	}
	await.Until(t, "half of all streams are open", func() bool { return errors.Is(watch(over, "192.0.2.1"), isotone.ErrQuotaExceeded) })
	if err := watch(over, "192.0.2.2"); err != nil {
		t.Errorf("another address: %v", err)
	}
	cancel()
	open.Wait()
	if err := watch(over, "192.0.2.1"); err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}
