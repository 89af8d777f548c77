package node

import (
	"slices"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/storage"
)

// PeersNeed says what Config.Peers is needed for.
type PeersNeed uint8

const (
	// PeersUnneeded: the addresses of the members are on record.
	PeersUnneeded PeersNeed = iota
	// PeersHelpful: the cluster is formed, and not all addresses may be on record. The members
	// register them right after that.
	PeersHelpful
	// PeersRequired: the cluster is not formed yet.
	PeersRequired
)

// NeedsPeers says what a node with this data directory needs Config.Peers for.
func NeedsPeers(rec storage.Recovered) (PeersNeed, error) {
	if rec.Snapshot == nil {
		return PeersRequired, nil
	}
	state, err := oracle.DecodeState(rec.Snapshot.GetData())
	switch {
	case err != nil:
		return PeersRequired, err
	case rec.Snapshot.GetMetadata().GetIndex() == 1 && len(rec.Entries) == 0:
		return PeersRequired, nil
	case slices.ContainsFunc(state.Members, func(m oracle.Member) bool { return m.PeerAddr == "" }):
		return PeersHelpful, nil
	}
	return PeersUnneeded, nil
}
