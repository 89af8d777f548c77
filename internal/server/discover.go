package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/node"
)

const (
	// discoverRetry is the time between two lookups of the initial members.
	discoverRetry = time.Second
	// discoverTimeout bounds one lookup. That of a node whose cluster is formed is shorter, as it need not
	// succeed.
	discoverTimeout, rediscoverTimeout = 5 * time.Second, 2 * time.Second
)

var errStoppedDiscovering = errors.New("stopped before all initial members were found in DNS")

// discover sets Peers from DNS if PEERS says so. Before the cluster is formed it waits until all
// members are there, and meanwhile answers clients on lns why the node is not ready. Once it is
// formed, addresses in DNS only help to reach members that do not answer at theirs on record.
//
// Afterwards it refuses peers in plaintext that only DNS has named; see [config.Settings.PeersInClear].
func discover(ctx context.Context, s *config.Settings, lns []net.Listener, lookup LookupSRV, log *slog.Logger) error {
	if s.PeersSRV == nil {
		return nil
	}
	if s.Peers == nil { // identify may have found them
		if err := findPeers(ctx, s, lns, lookup, log); err != nil {
			return err
		}
	}
	return s.PeersInClear()
}

func findPeers(ctx context.Context, s *config.Settings, lns []net.Listener, lookup LookupSRV, log *slog.Logger) error {
	rec, err := storage.Inspect(s.DataDir)
	if err != nil {
		return err
	}
	need, err := node.NeedsPeers(rec)
	switch {
	case err != nil:
		return fmt.Errorf("DATA_DIR: %w", err)
	case !need:
		if s.Peers, err = lookupPeers(ctx, s, lookup, rediscoverTimeout); err != nil {
			log.Info("not all initial members are found in DNS; this node goes on with the addresses that it knows", "name", s.PeersSRV.Name, "why", err.Error())
		}
		if s.Peers[s.NodeID] == "" {
			s.Peers = nil
		}
		return nil
	}
	return awaitPeers(ctx, s, lns, lookup, log)
}

// awaitPeers looks the initial members up until all of them are there.
func awaitPeers(ctx context.Context, s *config.Settings, lns []net.Listener, lookup LookupSRV, log *slog.Logger) error {
	w := beginWaiting(lns, "looking the initial members up in DNS", log)
	defer w.end()
	for {
		err := usePeers(ctx, s, lookup, log)
		if err == nil {
			return nil
		}
		w.tell(log, fmt.Sprintf("waiting for the initial members in DNS (PEERS, %s): %v", s.PeersSRV.Name, err),
			"waiting for the initial members in DNS", err.Error(), "node", s.NodeID, "name", s.PeersSRV.Name, "count", s.PeersSRV.Count)
		if !w.pause(ctx, discoverRetry) {
			return errStoppedDiscovering
		}
	}
}

// usePeers sets Peers if the records of all initial members are there.
func usePeers(ctx context.Context, s *config.Settings, lookup LookupSRV, log *slog.Logger) error {
	peers, err := lookupPeers(ctx, s, lookup, discoverTimeout)
	if err == nil {
		s.Peers = peers
		log.Info("found the initial members in DNS", "name", s.PeersSRV.Name, "peers", peers)
	}
	return err
}

// lookupPeers looks the initial members up once. With an error it returns those that it found.
func lookupPeers(ctx context.Context, s *config.Settings, lookup LookupSRV, timeout time.Duration) (map[uint64]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, records, err := lookup(ctx, "", "", s.PeersSRV.Name)
	if err != nil && len(records) == 0 {
		return nil, err
	}
	peers, err := s.PeersSRV.Peers(records)
	if err == nil && peers[s.NodeID] == "" {
		err = fmt.Errorf("there is no record of this node, NODE_ID %d", s.NodeID)
	}
	return peers, err
}
