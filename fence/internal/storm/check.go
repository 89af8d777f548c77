package storm

import (
	"slices"

	"github.com/isotone/isotone"
)

// stale returns the places of the writes that were accepted after one with a larger token. Tokens are in the order in which they were accepted.
func stale(tokens []isotone.Timestamp) (places []int) {
	var largest isotone.Timestamp
	for i, token := range tokens {
		if token.Before(largest) {
			places = append(places, i)
		} else {
			largest = token
		}
	}
	return places
}

// told is a frontier that a reader was told, and how many writes with a stamp at or below it a store had accepted at that moment.
type told struct {
	frontier isotone.Timestamp
	writes   int
}

// late returns each frontier at or below which a write was accepted after it was told, or one has vanished. Stamps are those of all accepted writes; it sorts them.
func late(stamps []isotone.Timestamp, tolds []told) (wrong []told) {
	slices.SortFunc(stamps, isotone.Timestamp.Compare)
	for _, t := range tolds {
		if through(stamps, t.frontier) != t.writes {
			wrong = append(wrong, t)
		}
	}
	return wrong
}

// through returns how many stamps, which are sorted, are at or below a frontier.
func through(stamps []isotone.Timestamp, frontier isotone.Timestamp) int {
	n, _ := slices.BinarySearchFunc(stamps, frontier, isotone.Timestamp.Compare)
	for n < len(stamps) && stamps[n] == frontier {
		n++
	}
	return n
}
