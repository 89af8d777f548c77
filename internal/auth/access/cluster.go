package access

import (
	"encoding/binary"
	"time"
)

// The rates of a user are for the cluster: each node tells the others what it has served, and owes what it is told to its own
// bucket of that user. A report has only what was served since the one before, as the connections between nodes lose nothing
// while they are open. Nodes that are cut off from each other count each by itself.

// ReportEvery is how often a node tells the others. In that time a user may get its limit from each node.
const ReportEvery = 100 * time.Millisecond

const (
	// ReportMax bounds a report, in bytes: some 700 users with the longest names. Others come with the next one.
	ReportMax = 64 << 10
	// useMax bounds what a report has of one user: its name with a length, and two counts.
	useMax = 1 + NameMax + 2*binary.MaxVarintLen64
	// oweMax is how far ahead the reports of others may use up a rate: more than the second's worth that a user may get
	// at once from each node. If the nodes have different lists, a user is locked out for no longer than that.
	oweMax = time.Minute
)

// told is what the other nodes were told of a user's tally. It belongs to the caller of [Control.Report].
type told struct{ requests, timestamps uint64 }

// Report returns what users with limited rates have used since the last report, for [Control.Owe] of the other nodes, at most
// ReportMax bytes; nil: nothing. Calls are not concurrent.
func (c *Control) Report() (report []byte) {
	for _, u := range c.table.Load().users {
		if len(report)+useMax > ReportMax {
			break // the order of a map is another one each time, so the others have their turn
		}
		now := told{u.usage.tally.requests.Load(), u.usage.tally.timestamps.Load()}
		before := u.usage.told
		u.usage.told = now
		if now != before && u.limits.hasRates() {
			report = append(append(report, byte(len(u.name))), u.name...)
			report = binary.AppendUvarint(report, now.requests-before.requests)
			report = binary.AppendUvarint(report, now.timestamps-before.timestamps)
		}
	}
	return report
}

// Owe counts what another node has served, by its Report. What cannot be read, and users that are not on the list of this node,
// count for nothing.
func (c *Control) Owe(report []byte) {
	users, now := c.table.Load().users, c.cfg.Now()
	for len(report) > 0 && len(report) > int(report[0]) {
		end := 1 + int(report[0])
		name, rest := report[1:end], report[end:]
		requests, n := binary.Uvarint(rest)
		timestamps, m := binary.Uvarint(rest[max(n, 0):])
		if n <= 0 || m <= 0 {
			return
		}
		report = rest[n+m:]
		if u := users[string(name)]; u != nil {
			u.usage.requests.owe(now, u.limits.Requests, requests)
			u.usage.timestamps.owe(now, u.limits.Timestamps, timestamps)
		}
	}
}

// hasRates reports whether requests or timestamps are limited.
func (l *Limits) hasRates() bool { return l.Requests > 0 || l.Timestamps > 0 }

// owe takes n at time now whether rate allows it or not, until oweMax is used up.
func (b *Bucket) owe(now time.Duration, rate, n uint64) {
	if rate != 0 && n != 0 {
		owe(&b.earned, now, time.Duration(costOf(rate, n)), oweMax)
	}
}
