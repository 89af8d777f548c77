package main

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
)

// writerFunc is a function as an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestConfirm_EndsWithTheCommand: Ctrl-C is an answer, too.
func TestConfirm_EndsWithTheCommand(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminal here: %v", err)
	}
	stdin(t, terminal)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupt := writerFunc(func(p []byte) (int, error) {
		cancel(errors.New("interrupt"))
		return len(p), nil
	})
	if err := confirm(ctx, console{io.Discard, interrupt}, "Everything is removed."); err == nil || err.Error() != "interrupt: nothing was changed" {
		t.Errorf("%v", err)
	}
}
