package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
	"github.com/isotone/isotone/internal/host/address"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/credential"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/node"
)

const (
	// joinRetry is the time between two rounds of questions to the nodes in JOIN.
	joinRetry = 500 * time.Millisecond
	// joinTimeout bounds one question.
	joinTimeout = 2 * time.Second
)

// identify finds out which member this node is. An old data directory says so. With JOIN and
// an empty one the cluster does: identify asks the nodes in JOIN until one of them knows this
// node, and meanwhile answers clients on lns why it is not ready.
//
// With PEERS beside JOIN, it also ends without join when the initial members are found in DNS and
// no node in JOIN has told of a cluster. Peers is set then. With join, PEERS means nothing any more. If there is a cluster all the same, its
// members refuse this node.
func identify(ctx context.Context, s *config.Settings, lns []net.Listener, lookup lookupSRV, steps node.Steps, log *slog.Logger) (member uint64, join *node.Join, err error) {
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
	q := joinQuestion{s: s, client: out.client(operatorTransport()), member: member, id: id}
	if s.PeerTLSCert != "" {
		cfg := peerConfig(s)
		cfg.Log = log
		if q.peers, err = credential.OpenPeers(cfg); err != nil {
			return 0, nil, err
		}
	}
	j, err := awaitJoining(ctx, &q, lns, lookup, log)
	if err != nil {
		return 0, nil, err
	}
	if j == nil {
		return member, nil, nil
	}
	reached(steps, "join told")
	cluster, err := checkJoining(s.NodeID, j)
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

// checkJoining checks the answer of a cluster to a node that joins, and returns the cluster's ID.
func checkJoining(node uint64, j *front.Joining) (isotone.ClusterID, error) {
	cluster, err := isotone.ParseClusterID(j.ClusterID)
	if err != nil {
		return 0, err
	}
	if _, listed := j.Peers[j.MemberID]; !listed || oracle.NodeOf(j.MemberID) != node {
		return 0, fmt.Errorf("the cluster says that node %d joins as member %d, which is not a member of this node, or not among the %d members that it names", node, j.MemberID, len(j.Peers))
	}
	for member, addr := range j.Peers {
		if addr != "" && !address.Valid(addr, 1) { // some have not registered theirs
			return 0, fmt.Errorf("the cluster says that member %d has the peer address %.100q, which is not host:port with at most %d bytes", member, addr, address.SizeMax)
		}
	}
	return cluster, nil
}

// awaitJoining asks the nodes in JOIN until one says how to join. A directory that was made
// to join, and was not let in before the process ended, goes on as the member in it; any other one of
// an initial member may form the cluster, and then the result is nil: see identify.
func awaitJoining(ctx context.Context, q *joinQuestion, lns []net.Listener, lookup lookupSRV, log *slog.Logger) (*front.Joining, error) {
	s := q.s
	mayForm := s.PeersSRV != nil && q.id.ClusterID == 0
	w := beginWaiting(lns, "waiting to join a cluster", log)
	defer w.end()
	for {
		j, err := q.ask(ctx)
		if err == nil {
			return &j, nil
		}
		why := err.Error()
		if mayForm && !tellsOfCluster(err) {
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

// tellsOfCluster reports whether, after an error of joinQuestion.ask, there is or may be a cluster: a member has answered that it has no
// place for this node, or refused its proof, or nobody could be asked. A node without a cluster answers no_leader.
func tellsOfCluster(err error) bool {
	var all joinFailures
	if errors.As(err, &all) {
		return slices.ContainsFunc(all, tellsOfCluster)
	}
	var told *operatorError
	return errors.Is(err, errOtherGeneration) || errors.Is(err, errNoProof) || errors.As(err, &told) && (told.code == isotone.CodeNotFound || told.code == isotone.CodeInvalidArgument || told.code == isotone.CodeForbidden)
}

// errNoProof: no node was asked.
var errNoProof = errors.New("the question how to join cannot be signed")

// errOtherGeneration: the cluster would let this node in, and not with its data directory.
var errOtherGeneration = errors.New("was made for another generation of this node: delete it")

var errStoppedJoining = errors.New("stopped before the cluster let this node join")

// joinQuestion is how a node asks those in JOIN how to join.
type joinQuestion struct {
	s      *config.Settings
	client *http.Client
	peers  *credential.Peers // signs the question; nil: nothing is proven
	member uint64
	id     storage.Identity // of the data directory
}

// proof returns the signature of the question, by the certificate in use now.
func (q *joinQuestion) proof() (string, error) {
	if q.peers == nil {
		return "", nil
	}
	q.peers.Check() // it may have been renewed since
	return q.peers.Prove(front.JoinMessage(q.s.NodeID, q.id.Incarnation))
}

// ask asks each node in JOIN once.
func (q *joinQuestion) ask(ctx context.Context) (front.Joining, error) {
	member, id := q.member, q.id
	proof, err := q.proof()
	if err != nil {
		return front.Joining{}, fmt.Errorf("%w: %w", errNoProof, err)
	}
	var failures joinFailures
	for _, addr := range q.s.Join {
		j, err := q.askOne(ctx, addr, proof)
		if err == nil && id.NodeID != 0 && j.MemberID != member {
			err = fmt.Errorf("the data directory %s %w", q.s.DataDir, errOtherGeneration)
		}
		if err == nil {
			return j, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", addr, err))
	}
	return front.Joining{}, failures
}

// askOne asks one node.
func (q *joinQuestion) askOne(ctx context.Context, addr, proof string) (j front.Joining, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/admin/join?node=%d&incarnation=%d", base, q.s.NodeID, q.id.Incarnation), nil)
	if err != nil {
		return j, err
	}
	if proof != "" {
		r.Header.Set(admin.ProofField, proof)
	}
	answer, _, err := exchange(q.client, r)
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(answer, &j)
}

// joinFailures has an error for each node in JOIN.
type joinFailures []error

// Error returns all of them in one line.
func (f joinFailures) Error() string {
	var texts []string
	for _, err := range f {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns them.
func (f joinFailures) Unwrap() []error { return f }
