package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/storage"
)

// Backup returns a backup; see front.Operator.
//
// It has this leader make reservations until two are applied. At most one was proposed before
// the request, so a quorum has followed this leader since, and the state has all that was
// answered before the request.
func (n *Node) Backup(ctx context.Context) ([]byte, error) {
	var term, reservations uint64
	var err error
	if !n.call(func() {
		if s := n.core.replica.Status(); s.Serving {
			term, reservations = s.Term, s.Counters.Reservations
		} else {
			err = n.redirect()
		}
	}) {
		return nil, errStopped
	}
	if err != nil {
		return nil, err
	}
	var b replica.Backup
	var ahead time.Duration // of the quorum's clock
	err = n.await(ctx, "the leadership for the backup", func(r *replica.Replica) bool {
		if s := r.Status(); !s.Serving || s.Term != term || s.Counters.Reservations < reservations+2 {
			n.core.next.Reserve = true
			return false
		}
		b, ahead = r.Backup(), max(0, r.Status().Clock.Offset)
		return true
	})
	if err != nil {
		return nil, err
	}
	d := backup.Document{
		ClusterID: isotone.ClusterID(b.ClusterID).String(), Taken: n.cfg.Clock.Wall().Add(-ahead),
		Level: b.Level, Index: b.Index, Ceiling: b.Ceiling, State: b.State,
	}
	d.Seal()
	return d.Encode(), nil
}

// openStore opens the data directory, and returns the seed in it if the cluster is still to be
// formed from it. A seed for another node or other founders, and a directory whose data file is gone, are refused before
// the directory is changed. One beside the data of a formed cluster is of no more use.
func openStore(cfg Config) (*storage.Store, storage.Recovered, *backup.Seed, error) {
	hasData, err := storage.HasData(cfg.DataDir)
	if err != nil {
		return nil, storage.Recovered{}, nil, err
	}
	if !hasData {
		seed, err := readSeed(cfg)
		if err == nil && seed == nil && cfg.Join == nil { // with Join, the cluster decides
			err = storage.CheckNew(cfg.DataDir)
		}
		if err != nil {
			return nil, storage.Recovered{}, nil, err
		}
	}
	store, rec, err := storage.Open(storage.Options{
		Dir: cfg.DataDir, NodeID: cfg.NodeID, Incarnation: random(), ClusterID: cfg.joinedCluster(),
		BeforeCommit: cfg.StorageFault,
	})
	if err != nil {
		return nil, storage.Recovered{}, nil, err
	}
	var seed *backup.Seed
	if len(rec.Entries) > 0 || rec.Snapshot.GetMetadata().GetIndex() > 1 {
		err = backup.RemoveSeed(cfg.DataDir) // the cluster is formed
	} else {
		seed, err = readSeed(cfg)
	}
	if err != nil {
		_ = store.Close()
		return nil, storage.Recovered{}, nil, err
	}
	return store, rec, seed, nil
}

// readSeed returns the seed in the data directory, nil if there is none, and checks that it is
// for this node.
func readSeed(cfg Config) (*backup.Seed, error) {
	s, err := backup.ReadSeed(cfg.DataDir)
	switch {
	case err != nil || s == nil:
		return nil, err
	case cfg.Join != nil:
		return nil, fmt.Errorf("the data directory %s was restored from a backup and forms a cluster: start it without JOIN", cfg.DataDir)
	}
	return s, s.CheckNode(oracle.NodeOf(cfg.NodeID), slices.Collect(maps.Keys(cfg.Peers)))
}

// replicaSeed decodes a seed.
func replicaSeed(s *backup.Seed) (*replica.Seed, error) {
	if s == nil {
		return nil, nil
	}
	state, err := oracle.DecodeState(s.Backup.State)
	if err != nil {
		return nil, fmt.Errorf("the backup %.16s: %w", s.Backup.Sum, err)
	}
	return &replica.Seed{Digest: s.Backup.Sum, Floor: s.Floor, State: state}, nil
}
