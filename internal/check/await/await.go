// Package await waits in tests for what goroutines, nodes and processes bring about. Only tests import it.
package await

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Timeout bounds a wait that names no other bound: nothing takes that long on a machine that is merely slow.
const Timeout = time.Minute

// Conditions are looked at again after pollMin at first, and then more and more rarely: every pollOften, later after a sixteenth of
// the time that has passed, and at least every pollMax. To look costs some milliseconds of processor time where it is a request to each
// node of a cluster, and some waits take seconds.
const (
	pollMin   = 100 * time.Microsecond
	pollOften = 10 * time.Millisecond
	pollMax   = 40 * time.Millisecond
)

// expiryMin is the first time in which Expired lets a context expire.
const expiryMin = 20 * time.Millisecond

// Until waits until holds returns true. After Timeout it fails the test, and says what was not so.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Done(t, Timeout, func() (bool, string) { return holds(), "not in time: " + what })
}

// Done waits until done returns true. After the timeout it fails the test with the last reason.
func Done(t testing.TB, timeout time.Duration, done func() (bool, string)) {
	t.Helper()
	for began, poll := time.Now(), pollMin; ; poll *= 2 {
		ok, why := done()
		if ok {
			return
		}
		waited := time.Since(began)
		if waited > timeout {
			t.Fatalf("after %v: %s", timeout, why)
		}
		poll = min(poll, max(pollOften, waited/16), pollMax)
		time.Sleep(poll)
	}
}

// Expired calls call with a context that expires, ever later, until it returns an error that is as wanted: what it says of the time
// before its deadline takes a slow machine longer. Each error has to be one of a context that has expired. After Timeout it fails the test.
func Expired(t testing.TB, call func(context.Context) error, isWanted func(error) bool) {
	t.Helper()
	for wait := expiryMin; ; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		err := call(ctx)
		cancel()
		switch {
		case !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("with a context that expires: %v", err)
		case isWanted(err):
			return
		case wait > Timeout:
			t.Fatalf("with a context that expired after %v: %v", wait, err)
		}
	}
}

// Receive returns what comes from ch, or its zero value once ch is closed. After Timeout it fails the test.
func Receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}
