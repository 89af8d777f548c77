package node

import (
	"fmt"
	"slices"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
)

// What clients are told of who owns which timelines.

// slotGroups are the groups of hash slots, in the order of the slots.
var slotGroups = func() (names [timeline.SlotGroups]string) {
	for i := range names {
		names[i] = fmt.Sprintf("h%03d", i)
	}
	return names
}()

// slotOwners returns front.Status.SlotOwners: latest, if that is still right.
func slotOwners(r *replica.Replica, latest []uint64) []uint64 {
	table := r.Timelines()
	if table.Len() == 0 {
		return nil
	}
	owners := make([]uint64, len(slotGroups))
	for i, name := range slotGroups {
		if g, _ := table.Group(name); table.LenOf(name) > 0 { // of the others an owner may be long gone
			owners[i] = oracle.NodeOf(g.Owner)
		}
	}
	if slices.Equal(owners, latest) {
		return latest
	}
	return owners
}

// isApart returns front.Batch.Apart.
func (c *core) isApart(b *front.Batch) bool {
	have, ok := c.replica.Timelines().Timeline(b.Timeline)
	return ok && have.Group != timeline.GroupOf(b.Timeline)
}
