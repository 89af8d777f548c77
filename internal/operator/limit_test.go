package operator_test

import (
	"context"
	"errors"
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
