package node

import (
	"math"

	"github.com/isotone/isotone/internal/core/wire"
)

// A report of this process for the other members is an answer to a request of an operator that nobody has made: members of older versions,
// where nothing waits for that nonce, skip it. What it says is between Tell and Config.Told.

// toldNonce is the nonce of reports. Those of requests count from 1.
const toldNonce = math.MaxUint64

// Tell sends a report to all members that are connected, and waits for nothing. A member that is not connected, or does not read,
// never gets it.
func (n *Node) Tell(report []byte) {
	n.post(func() {
		for _, p := range n.core.peers.conns {
			if !p.full() {
				p.write(wire.AppendCarryAnswer(p.conn.Buffered(), toldNonce, 0, report))
			}
		}
	})
}
