package operator_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/internal/operator"
)

func TestLimit_DoesNotCountTheTimeOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := operator.NewLimit(4 * time.Second)
		time.Sleep(3 * time.Second)
		if err := l.Without(func() error { time.Sleep(time.Hour); return nil }); err != nil {
			t.Error(err)
		}
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		if ctx.Err() != nil {
			t.Error("the time of the answer counts")
		}
		began := time.Now()
		<-ctx.Done()
		err := context.Cause(ctx)
		if took := time.Since(began); took != time.Second || !errors.Is(err, context.DeadlineExceeded) || err.Error() != "no answer within 4s (--timeout)" {
			t.Errorf("after %v: %v", took, err)
		}
	})
	var none *operator.Limit
	ctx, cancel := none.Context(t.Context())
	defer cancel()
	if _, limited := ctx.Deadline(); limited || none.Without(func() error { return nil }) != nil {
		t.Error("no limit is one")
	}
}

// silent is a node that does not answer.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// TestAsk_ARequestThatChangesNothingHasAThird of the time that is left, and 3 s at least: another node may answer then.
func TestAsk_ARequestThatChangesNothingHasAThird(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{time.Second: time.Second, 6 * time.Second: 3 * time.Second, time.Minute: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			began := time.Now()
			_, _, err := operator.Ask(ctx, &http.Client{Transport: silent{}}, http.MethodGet, "http://node/members", nil)
			if took := time.Since(began); took != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v are left: after %v, %v; want %v", left, took, err, want)
			}
		})
	}
}
