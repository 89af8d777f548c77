package main

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
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
