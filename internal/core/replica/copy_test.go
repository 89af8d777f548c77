package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
)

// holderTicks is that of the replica for a tick of 10 ms.
const holderTicks = 300

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
			c.wantRefusal(by, copied, replica.RefusedInUse)
		}
	}
	// Elsewhere the original was out of sight for a moment, and the copy came in.
	other := c.followers(l)[1]
	c.turn(other, &replica.Input{Gone: []uint64{f.id}})
	c.wantRefusal(other, copied, "")
	c.turn(other, &replica.Input{Hellos: []replica.Hello{copied}})
	c.wantRefusal(other, original, "")
	c.turn(other, &replica.Input{Hellos: []replica.Hello{original}})
	c.wantRefusal(other, copied, replica.RefusedInUse)
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
	c.wantRefusal(l, again, replica.RefusedInUse)
	c.tick(holderTicks + 1)
	c.wantRefusal(l, again, "")
}

// A copy is stopped once its original was heard for long after it came.
func TestCopy_StopsWhenTheOriginalIsHeardOn(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.tick(100)
	copied := f.Hello()
	copied.Boot++
	copied.Session = 4711
	c.wantRefusal(l, copied, replica.RefusedInUse)
	c.tick(holderTicks - 1)
	c.wantRefusal(l, copied, replica.RefusedInUse)
	c.tick(2)
	c.wantRefusal(l, copied, replica.RefusedCloned)
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
