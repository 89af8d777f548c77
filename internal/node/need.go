package node

import (
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/storage"
)

// NeedsPeers reports whether a node with this data directory cannot start without Config.Peers: its
// cluster is not formed yet. Afterwards they help to reach members that do not answer at their
// addresses on record.
func NeedsPeers(rec storage.Recovered) (bool, error) {
	if rec.Snapshot == nil {
		return true, nil
	}
	_, err := oracle.DecodeState(rec.Snapshot.GetData())
	return err != nil || rec.Snapshot.GetMetadata().GetIndex() == 1 && len(rec.Entries) == 0, err
}
