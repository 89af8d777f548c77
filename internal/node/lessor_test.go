package node

import (
	"errors"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

func TestLessor_AnswersEachRequestOnce(t *testing.T) {
	l := &lessor{open: map[uint64]*front.WorkerRequest{}}
	var in replica.Input
	answered := map[*front.WorkerRequest]int{}
	request := func() *front.WorkerRequest {
		return &front.WorkerRequest{Session: 5, Fixed: -1, From: 1000, Length: 500, Done: func(r *front.WorkerRequest) { answered[r]++ }}
	}
	var all []*front.WorkerRequest
	for range leaseRequestsMax {
		r := request()
		all = append(all, r)
		l.take(r, &in)
	}
	if len(answered) != 0 || len(in.LeaseRequests) != leaseRequestsMax {
		t.Fatalf("%d answered, %d arrived", len(answered), len(in.LeaseRequests))
	}
	full := request()
	l.take(full, &in)
	if answered[full] != 1 || !errors.Is(full.Err, isotone.ErrOverloaded) || len(l.open) != leaseRequestsMax {
		t.Errorf("beyond the limit: answered %d times, %v", answered[full], full.Err)
	}
	twitter := snowflake.Twitter
	l.answer(&replica.LeaseAnswer{Token: in.LeaseRequests[0].Token, Worker: 3, Start: 1000, End: 1500, Space: oracle.Space(twitter)})
	if r := all[0]; r.Err != nil || r.Worker != 3 || r.Lease != (snowflake.Lease{Start: 1000, End: 1500}) || r.Layout != twitter {
		t.Errorf("%+v", r)
	}
	l.answer(&replica.LeaseAnswer{Token: in.LeaseRequests[1].Token, Err: isotone.ErrNoLeader})
	if !errors.Is(all[1].Err, isotone.ErrNoLeader) {
		t.Errorf("%v", all[1].Err)
	}
	l.close(errStopped)
	for i, r := range all {
		if answered[r] != 1 || i > 1 && r.Err != errStopped {
			t.Fatalf("request %d: answered %d times, %v", i, answered[r], r.Err)
		}
	}
	if len(l.open) != 0 {
		t.Errorf("%d requests are left", len(l.open))
	}
}
