// Package loadtest has what tests of the loaders of databases share: loads with a limit, their outcomes, and
// a resolver that leads to an address which is refused.
package loadtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/live/store"
)

// SizeMax is the limit of each load, in bytes.
const SizeMax = 1000

// Open returns the loader of a URL, which is closed at the end of the test.
func Open[L store.Loader](t *testing.T, open func(*store.URL) (L, error), text string) store.Loader {
	t.Helper()
	u, err := store.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// Load loads the document once, within a time.
func Load(t *testing.T, l store.Loader, within time.Duration) (document string, changed bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	b, changed, err := l.Load(ctx, SizeMax)
	return string(b), changed, err
}

// Wants fails the test unless a load has that outcome: a document, "" for an unchanged one, or an error.
func Wants(t *testing.T, l store.Loader, want string, code error) {
	t.Helper()
	got, changed, err := Load(t, l, time.Minute)
	if got != want || changed != (want != "") || !errors.Is(err, code) {
		t.Errorf("%q, %v, %v; want %q, %v", got, changed, err, want, code)
	}
}
