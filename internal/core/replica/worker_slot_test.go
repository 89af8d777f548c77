package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// A node that learns from a snapshot that its lease was revoked, replaced, and the replacement
// revoked as well, once made a second generator for the first one.
func TestWithoutReplaced_ASlotHasOneLeaseWhateverTheirOrder(t *testing.T) {
	lease := func(worker uint16, slot uint8, start uint64, revoked bool) oracle.WorkerLease {
		return oracle.WorkerLease{Worker: worker, Slot: slot, Start: start, End: start + 10, Revoked: revoked}
	}
	for _, c := range []struct {
		name string
		held []oracle.WorkerLease
		want []uint16 // workers
	}{
		{"one lease for each slot", []oracle.WorkerLease{lease(1, 0, 5, false), lease(2, 1, 5, true)}, []uint16{1, 2}},
		{"a revoked one was replaced", []oracle.WorkerLease{lease(1, 0, 9, true), lease(3, 0, 5, false)}, []uint16{3}},
		{"both were revoked, the later one has the lower worker", []oracle.WorkerLease{lease(1, 0, 9, true), lease(3, 0, 5, true)}, []uint16{1}},
		{"both were revoked, the later one has the higher worker", []oracle.WorkerLease{lease(1, 0, 5, true), lease(3, 0, 9, true)}, []uint16{3}},
		{"both were revoked and begin together", []oracle.WorkerLease{lease(1, 0, 5, true), lease(3, 0, 5, true)}, []uint16{3}},
	} {
		var got []uint16
		for _, l := range replica.WithoutReplaced(c.held) {
			got = append(got, l.Worker)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: workers %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: workers %v, want %v", c.name, got, c.want)
			}
		}
	}
}
