package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
)

// holderTicks and clonedTicks are those of the replica for a tick of 10 ms.
const (
	holderTicks = 300
	clonedTicks = holderTicks + 100
)

// A copy of a data directory that is started beside the original is refused as long as that
// is heard of, and the original keeps its membership whatever the copy said.
func TestCopy_DoesNotTakeThePlaceOfARunningProcess(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.tick(100)
	original := f.Hello()
	copied := original
	copied.Boot++
	copied.Session = 4711
	for _, by := range c.running() {
		if by != f {
			c.wantRefusal(by, copied, replica.RefusedCloned)
		}
	}
	// Elsewhere the original was out of sight for a moment, and the copy came in.
	other := c.followers(l)[1]
	c.turn(other, &replica.Input{Gone: []uint64{f.id}})
	c.wantRefusal(other, copied, "")
	c.turn(other, &replica.Input{Hellos: []replica.Hello{copied}})
	c.wantRefusal(other, original, "")
	c.turn(other, &replica.Input{Hellos: []replica.Hello{original}})
	c.wantRefusal(other, copied, replica.RefusedCloned)
}

// A process whose machine lost its power leaves connections behind that seem alive.
func TestCopy_ARestartIsLetInWhenItsLastProcessIsSilent(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.tick(100)
	again := f.Hello()
	again.Boot++
	again.Session = 4711
	f.down = true
	c.wantRefusal(l, again, replica.RefusedCloned)
	c.tick(holderTicks + 1)
	c.wantRefusal(l, again, "")
}

// A copy ends by itself, but not before its last process would have been given up.
func TestCopy_StopsWhenItIsRefusedForLong(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.isolate(f.id)
	refusal := &replica.Refusal{Code: replica.RefusedCloned, Message: "a copy"}
	for passed := 0; ; passed += 50 {
		err := f.Refused(l.id, refusal)
		if early := passed < clonedTicks; early != (err == nil) {
			t.Fatalf("after %d ticks: %v", passed, err)
		}
		if err != nil {
			return
		}
		c.tick(50)
	}
}

// wantRefusal checks how a node judges a hello; "" admits it.
func (c *cluster) wantRefusal(by *node, h replica.Hello, want replica.RefusalCode) {
	c.t.Helper()
	var code replica.RefusalCode
	if r := by.Admit(h); r != nil {
		code = r.Code
	}
	if code != want {
		c.t.Errorf("node %d: %q, want %q", by.id, code, want)
	}
}
