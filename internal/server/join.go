package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/operator"
)

// joinRetry is the time between two rounds of questions to the nodes in JOIN.
const joinRetry = 500 * time.Millisecond

// identify finds out which member this node is. An old data directory says so. With JOIN and
// an empty one the cluster does: identify asks the nodes in JOIN until one of them knows this
// node, and meanwhile answers clients on lns why it is not ready.
//
// With PEERS beside JOIN, it also ends without join when the initial members are found in DNS and
// no node in JOIN has told of a cluster. Peers is set then. With join, PEERS means nothing any more. If there is a cluster all the same, its
// members refuse this node.
func identify(ctx context.Context, s *config.Settings, lns []net.Listener, lookup LookupSRV, steps node.Steps, log *slog.Logger) (member uint64, join *node.Join, err error) {
	id, hasState, err := storage.Identify(s.DataDir)
	if err != nil {
		return 0, nil, err
	}
	member = s.NodeID
	if id.NodeID != 0 {
		if node := oracle.NodeOf(id.NodeID); node != s.NodeID {
			return 0, nil, &storage.IdentityError{Dir: s.DataDir, Have: node, Want: s.NodeID}
		}
		member = id.NodeID
	}
	if s.Join == nil || hasState {
		return member, nil, nil
	}
	if seed, err := backup.ReadSeed(s.DataDir); err != nil || seed != nil {
		if err == nil && s.PeersSRV != nil {
			return member, nil, nil
		}
		return 0, nil, errors.Join(fmt.Errorf("the data directory %s was restored from a backup and forms a cluster: start it without JOIN", s.DataDir), err)
	}
	reached(steps, "join begun")
	out, err := outward(s)
	if err != nil {
		return 0, nil, err
	}
	q := operator.JoinQuestion{Client: out.HTTPClient(operator.Transport()), Nodes: s.Join, Node: s.NodeID, Member: member, Dir: s.DataDir, Incarnation: id.Incarnation}
	if s.PeerTLSCert != "" {
		cfg := peerConfig(s)
		cfg.Log = log
		peers, err := credential.OpenPeers(cfg)
		if err != nil {
			return 0, nil, err
		}
		q.Prove = func(message string) (string, error) {
			peers.Check() // it may have been renewed since
			return peers.Prove(message)
		}
	}
	j, err := awaitJoining(ctx, s, &q, id.ClusterID == 0, lns, lookup, log)
	if err != nil {
		return 0, nil, err
	}
	if j == nil {
		return member, nil, nil
	}
	reached(steps, "join told")
	cluster, err := operator.CheckJoining(s.NodeID, j)
	if err != nil {
		return 0, nil, fmt.Errorf("JOIN: %w", err)
	}
	if id.ClusterID != 0 && id.ClusterID != uint64(cluster) {
		return 0, nil, fmt.Errorf("JOIN names nodes of cluster %v, but the data directory %s was made to join cluster %v: delete it, or name nodes of that cluster",
			cluster, s.DataDir, isotone.ClusterID(id.ClusterID))
	}
	s.PeersSRV = nil // the cluster has named its members
	log.Info("joining a cluster", "node", s.NodeID, "cluster", j.ClusterID, "members", len(j.Peers))
	return j.MemberID, &node.Join{ClusterID: uint64(cluster), Peers: j.Peers}, nil
}

// awaitJoining asks the nodes in JOIN until one says how to join. A directory that was made
// to join, and was not let in before the process ended, goes on as the member in it; any other one of
// an initial member may form the cluster, and then the result is nil: see identify.
func awaitJoining(ctx context.Context, s *config.Settings, q *operator.JoinQuestion, isNew bool, lns []net.Listener, lookup LookupSRV, log *slog.Logger) (*front.Joining, error) {
	mayForm := s.PeersSRV != nil && isNew
	w := beginWaiting(lns, "waiting to join a cluster", log)
	defer w.end()
	for {
		j, err := q.Ask(ctx)
		if err == nil {
			return &j, nil
		}
		why := err.Error()
		if mayForm && !operator.TellsOfCluster(err) {
			missing := usePeers(ctx, s, lookup, log)
			if missing == nil {
				return nil, nil
			}
			why = fmt.Sprintf("no cluster to join (%v), and the initial members are not all in DNS (PEERS, %s): %v", err, s.PeersSRV.Name, missing)
		}
		w.tell(log, "not a member yet: "+why, "waiting to join a cluster", why, "node", s.NodeID)
		if !w.pause(ctx, joinRetry) {
			return nil, errStoppedJoining
		}
	}
}

var errStoppedJoining = errors.New("stopped before the cluster let this node join")
