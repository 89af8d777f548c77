package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Where a restored or recovered cluster begins (I13). What isotone restore and isotone recover decide is here, so that
// the simulator runs it.
//
// The lost cluster may have gone on after what is known of it. Its clocks moved it no further ahead than the present
// time, and clients by ClientFloorAheadMax more. If it was further ahead of the clock already, its lead did not
// grow (headroom.go): it has gained no more than the time that has passed.

// marginHeldMin is the smallest margin above a cluster whose time stood ahead of the clock. A lead shrinks once in an epoch
// and the clocks of two machines differ, so without a margin the new cluster might begin below the old one.
const marginHeldMin = time.Second

// floorPastMax is how far below the ceiling of the backup the largest timestamp that clients have seen may be.
// One that is older is a mistake: clients of the lost cluster were given larger ones before the backup.
const floorPastMax = time.Minute

// Mark says how far a cluster had come: its ceiling, or where it began, when a clock showed At. Both are in unix
// nanoseconds. The zero value says nothing.
type Mark struct{ Time, At uint64 }

// lead returns how far the mark was ahead of the clock, in nanoseconds.
func (m Mark) lead() uint64 { return m.Time - min(m.Time, m.At) }

// carried returns how far the cluster can have come since.
func (m Mark) carried(now uint64) uint64 {
	if mutant.On(mutant.CarryNothing) {
		return m.Time
	}
	return m.Time + now - min(now, m.At)
}

// Beginning is what decides where a restored or recovered cluster begins.
type Beginning struct {
	// Backup is how far the lost cluster had come when the backup was taken.
	Backup Mark
	// Earlier are where earlier clusters began that were restored from the same backup, and when.
	Earlier []Mark
	// Prepared is where the cluster would begin that the data directory is prepared for, 0 if it is not.
	Prepared uint64
	// Now is what the clock of this machine shows, in unix nanoseconds.
	Now uint64
	// Margin is added to all that is known, at least 0.
	Margin time.Duration
	// Floor is the largest time that clients have seen, in unix nanoseconds, 0 if the operator gives none.
	Floor uint64
	// Force permits a beginning more than FloorAheadMax ahead of the clock, a backup that is newer than the
	// clock, and a floor that contradicts the backup.
	Force bool
}

// Time returns the time at which the new cluster begins, in unix nanoseconds: above everything that the lost one can have
// issued, and never below Prepared. The error says what contradicts itself, and what to do.
func (b Beginning) Time() (uint64, error) {
	if err := b.check(); err != nil {
		return 0, err
	}
	margin := uint64(max(0, b.Margin))
	known := max(b.Backup.carried(b.Now), b.Now+uint64(ClientFloorAheadMax))
	for _, e := range b.Earlier {
		known = max(known, e.carried(b.Now))
	}
	if b.Floor != 0 {
		known = max(known, b.Floor+1)
	}
	begin := max(min(known, oracle.CeilingMax)+margin, b.Prepared)
	if mutant.On(mutant.FloorWithoutMargin) && b.Floor+1 == known {
		begin = max(known, b.Prepared)
	}
	ahead := begin - min(begin, b.Now)
	switch {
	case begin >= oracle.CeilingMax-1 || begin > oracle.FloorMax && b.latest() <= oracle.FloorMax:
		return 0, fmt.Errorf("the new cluster would begin at %s, and must not begin after %s, even with --force: nothing sets it back, and time has to go on after it; is the clock right?",
			timeText(begin), timeText(oracle.FloorMax))
	case !b.Force && ahead > uint64(FloorAheadMax+b.Margin):
		return 0, fmt.Errorf("the new cluster would begin at %s, %v ahead of this machine's clock, and its time would stand still for that long; is the clock right? If so, go on with --force",
			timeText(begin), time.Duration(ahead).Round(time.Second))
	}
	return begin, nil
}

// check refuses what contradicts itself.
func (b Beginning) check() error {
	held := b.Backup.lead() > uint64(ClientFloorAheadMax)
	for _, e := range b.Earlier {
		held = held || e.lead() > uint64(ClientFloorAheadMax)
		if !b.Force && e.At > b.Now+uint64(max(0, b.Margin)) {
			return fmt.Errorf("the backup was restored before at %s, and this machine's clock shows %s: set the clock, and restore again; or say with --floor what the largest timestamp was, and go on with --force",
				timeText(e.At), timeText(b.Now))
		}
	}
	switch {
	case max(b.latest(), b.Floor, b.Now) >= oracle.CeilingMax-1:
		return errors.New("the new cluster must begin before the year 2262")
	case held && b.Margin < marginHeldMin:
		return fmt.Errorf("the time of the lost cluster was ahead of its clock, and a new cluster may begin too low with a margin of %v: want a --margin of %v or more", b.Margin, marginHeldMin)
	case b.Force:
	case b.Backup.At > b.Now+uint64(max(0, b.Margin)):
		return fmt.Errorf("the backup was taken at %s, and this machine's clock shows %s: set the clock, and restore again; or say with --floor what the largest timestamp was, and go on with --force",
			timeText(b.Backup.At), timeText(b.Now))
	case b.Floor != 0 && b.Floor+uint64(floorPastMax) < b.Backup.Time:
		return fmt.Errorf("the largest timestamp that clients have seen can hardly be of %s, because the cluster had reserved time up to %s when the backup was taken: correct --floor, or leave it out",
			timeText(b.Floor), timeText(b.Backup.Time))
	}
	return nil
}

// latest returns the latest time that is known of any of the clusters.
func (b Beginning) latest() uint64 {
	last := max(b.Backup.Time, b.Prepared)
	for _, e := range b.Earlier {
		last = max(last, e.Time)
	}
	return last
}

// timeText returns a time in unix nanoseconds as RFC 3339 has it.
func timeText(ns uint64) string {
	return time.Unix(0, int64(min(ns, oracle.CeilingMax))).UTC().Format(time.RFC3339)
}
