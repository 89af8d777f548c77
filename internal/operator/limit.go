package operator

import (
	"context"
	"fmt"
	"time"
)

// Limit bounds a command as a whole. Nil bounds nothing. It is used by one goroutine.
type Limit struct {
	of    time.Duration
	until time.Time
}

// NewLimit returns a limit that begins now.
func NewLimit(of time.Duration) *Limit { return &Limit{of: of, until: time.Now().Add(of)} }

// Without calls ask, which asks a person, and does not count the time until the answer.
func (l *Limit) Without(ask func() error) error {
	began := time.Now()
	err := ask()
	if l != nil {
		l.until = l.until.Add(time.Since(began))
	}
	return err
}

// Context returns a context that ends with the limit. Its cause says so.
func (l *Limit) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if l == nil {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, l.until, timeoutError(fmt.Sprintf("no answer within %v (--timeout)", l.of)))
}

// timeoutError is a context.DeadlineExceeded that says which deadline it was.
type timeoutError string

// Error returns e.
func (e timeoutError) Error() string { return string(e) }

// Is makes errors.Is take it for context.DeadlineExceeded.
func (timeoutError) Is(err error) bool { return err == context.DeadlineExceeded }

// Timeout and Temporary implement net.Error.
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
