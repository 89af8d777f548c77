package survey

import (
	"fmt"
	"slices"
	"strings"
)

// addressWarnings warns of members that have another peer address on record than in PEERS.
func (r *Report) addressWarnings() (warnings []string) {
	type difference struct {
		node     uint64
		pair     [2]string // on record, in PEERS
		seenFrom []uint64
	}
	var found []difference
	for _, v := range r.Views {
		if v.State == nil {
			continue
		}
		for _, m := range v.State.Members {
			if m.OtherAddr == "" {
				continue
			}
			pair := [2]string{m.PeerAddr, m.OtherAddr}
			i := slices.IndexFunc(found, func(d difference) bool { return d.node == m.NodeID && d.pair == pair })
			if i < 0 {
				i, found = len(found), append(found, difference{node: m.NodeID, pair: pair})
			}
			found[i].seenFrom = append(found[i].seenFrom, v.NodeID)
		}
	}
	for _, d := range found {
		warnings = append(warnings, fmt.Sprintf("node %d is on record at %s, and PEERS of node %s says %s: correct PEERS, or the record (isotone member update)",
			d.node, or(d.pair[0]), strings.ReplaceAll(strings.Trim(fmt.Sprint(d.seenFrom), "[]"), " ", ", "), or(d.pair[1])))
	}
	return warnings
}
