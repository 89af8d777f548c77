package server

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/utc"
	"github.com/isotone/isotone/internal/node"
)

func TestDescribeClock_TellsTheQuorumsOnlyIfItIsKnown(t *testing.T) {
	r := &node.Report{Skew: -2 * time.Second, SkewKnown: true, ClockJumpMax: 500 * time.Millisecond}
	if c := describeClock(r); c.OffsetFromQuorumSeconds != nil || c.OffsetFromMedianSeconds != 2 || !c.OK || c.LimitSeconds != 0.5 {
		t.Errorf("not known: %+v", c)
	}
	r.Clock = replica.Clock{Known: true, Offset: -time.Hour, Exceeded: true, SoleVoter: true}
	if c := describeClock(r); c.OffsetFromQuorumSeconds == nil || *c.OffsetFromQuorumSeconds != -3600 || !c.Exceeded || !c.SoleVoter {
		t.Errorf("%+v", c)
	}
}

func TestDescribeUTC_HasABoundOnlyIfThereIsOne(t *testing.T) {
	if u := describeUTC(utc.Status{}, false); u != nil {
		t.Errorf("nobody tells: %+v", u)
	}
	if u := describeUTC(utc.Status{Source: utc.Kernel}, true); u.Source != "kernel" || u.Synchronized || u.ErrorSeconds != nil {
		t.Errorf("not synchronized: %+v", u)
	}
	if u := describeUTC(utc.Status{Source: utc.ClockBound, Synchronized: true, Known: true, Error: time.Millisecond}, true); !u.Synchronized || u.ErrorSeconds == nil || *u.ErrorSeconds != 0.001 {
		t.Errorf("%+v", u)
	}
}
