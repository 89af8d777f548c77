package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
)

// joinTimeout bounds one question.
const joinTimeout = 2 * time.Second

// JoinQuestion is how a node asks those in JOIN how to join.
type JoinQuestion struct {
	Client *http.Client
	Nodes  []string // addresses or URLs
	// Node and Member are the IDs of the node that asks, and of its data directory or that of the node.
	Node, Member uint64
	// Dir is the data directory, and Incarnation that of the one in it; 0 if there is none, and then the cluster
	// decides which member this is.
	Dir         string
	Incarnation uint64
	// Prove signs a message; nil: nothing is proven.
	Prove func(message string) (string, error)
}

// Ask asks each node once, until one says how to join.
func (q *JoinQuestion) Ask(ctx context.Context) (front.Joining, error) {
	proof := ""
	if q.Prove != nil {
		var err error
		if proof, err = q.Prove(front.JoinMessage(q.Node, q.Incarnation)); err != nil {
			return front.Joining{}, fmt.Errorf("%w: %w", errNoProof, err)
		}
	}
	var failures joinFailures
	for _, addr := range q.Nodes {
		j, err := q.askOne(ctx, addr, proof)
		if err == nil && q.Incarnation != 0 && j.MemberID != q.Member {
			err = fmt.Errorf("the data directory %s %w", q.Dir, errOtherGeneration)
		}
		if err == nil {
			return j, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", addr, err))
	}
	return front.Joining{}, failures
}

// askOne asks one node.
func (q *JoinQuestion) askOne(ctx context.Context, addr, proof string) (j front.Joining, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/admin/join?node=%d&incarnation=%d", base, q.Node, q.Incarnation), nil)
	if err != nil {
		return j, err
	}
	if proof != "" {
		r.Header.Set(admin.ProofField, proof)
	}
	answer, _, err := Exchange(q.Client, r)
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(answer, &j)
}

// CheckJoining checks the answer of a cluster to a node that joins, and returns the cluster's ID.
func CheckJoining(node uint64, j *front.Joining) (isotone.ClusterID, error) {
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

// TellsOfCluster reports whether, after an error of JoinQuestion.Ask, there is or may be a cluster: a member has answered that it has no
// place for this node, or refused its proof, or nobody could be asked. A node without a cluster answers no_leader.
func TellsOfCluster(err error) bool {
	var all joinFailures
	if errors.As(err, &all) {
		return slices.ContainsFunc(all, TellsOfCluster)
	}
	var told *Error
	return errors.Is(err, errOtherGeneration) || errors.Is(err, errNoProof) || errors.As(err, &told) && (told.Code == isotone.CodeNotFound || told.Code == isotone.CodeInvalidArgument || told.Code == isotone.CodeForbidden)
}

// errNoProof: no node was asked.
var errNoProof = errors.New("the question how to join cannot be signed")

// errOtherGeneration: the cluster would let this node in, and not with its data directory.
var errOtherGeneration = errors.New("was made for another generation of this node: delete it")

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
