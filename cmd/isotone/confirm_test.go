package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// writerFunc is a function as an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestConfirm_EndsWithTheCommand: Ctrl-C is an answer, too.
func TestConfirm_EndsWithTheCommand(t *testing.T) {
	in, end := io.Pipe() // nobody types
	defer end.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupt := writerFunc(func(p []byte) (int, error) {
		cancel(errors.New("interrupt"))
		return len(p), nil
	})
	if err := confirmFrom(ctx, in, console{io.Discard, interrupt}, "Everything is removed."); err == nil || err.Error() != "interrupt: nothing was changed" {
		t.Errorf("%v", err)
	}
}

func TestConfirm_OnlyYesIsYes(t *testing.T) {
	for text, want := range map[string]string{
		"y\n": "", "YES\n": "", " yes \n": "", "yes": "", "n\n": "nothing was changed", "\n": "nothing was changed", "yesterday\n": "nothing was changed",
		"": "Nobody answers. Confirm with --yes.",
	} {
		got := ""
		if err := confirmFrom(t.Context(), strings.NewReader(text), console{io.Discard, io.Discard}, "?"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
