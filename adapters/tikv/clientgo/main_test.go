package clientgo_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

// testWait bounds every wait of these tests.
const testWait = time.Minute

// source issues consecutive timestamps near the wall clock.
type source struct {
	mu    sync.Mutex
	last  isotone.Timestamp64
	err   error // set: every call fails
	calls int
	hold  bool // calls wait for their context
}

func (s *source) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.calls++
	s.last = max(s.last+1, isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), 0))
	return s.last, nil
}

func (s *source) set(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *source) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	t.Cleanup(cancel)
	return ctx
}
