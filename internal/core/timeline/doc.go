// Package timeline is the replicated table of timelines. A timeline is a named order of timestamps beside the default
// one, with a floor, a quota and a life of its own. The operations of one timeline are linearizable; between two
// timelines nothing is promised.
//
// Timelines are in groups, and a group is served by one process, its owner. The log says which process owns which
// group since which entry: that is a tenure. All timelines share one ceiling, which reservations raise, and a tenure begins
// at the ceiling as it stood when the group was granted. So a change of owners is one entry, and a timestamp takes none.
//
// The table changes only by [Table.Reserve] and [Table.Apply], called for committed log entries in log order, and so is the
// same on every member at the same log index. What it keeps (T2): the timestamps that an owner issues within [Table.Bounds],
// as it has applied the log, are above all that earlier tenures of the name have issued, those of a deleted timeline of that name among them.
package timeline
