package node

import (
	"fmt"
	"testing"

	"github.com/isotone/isotone/internal/core/timeline"
)

// TestSlotGroups_AreThoseOfTheSlots: each group is at the place of its slots.
func TestSlotGroups_AreThoseOfTheSlots(t *testing.T) {
	const perGroup = timeline.Slots / timeline.SlotGroups
	seen := map[string]bool{}
	for i := 0; len(seen) < timeline.SlotGroups; i++ {
		name := fmt.Sprintf("name-%d", i)
		group := slotGroups[timeline.Slot(name)/perGroup]
		if group != timeline.GroupOf(name) {
			t.Fatalf("%s is in %s, not in %s", name, timeline.GroupOf(name), group)
		}
		seen[group] = true
	}
}
