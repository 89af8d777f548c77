package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/config"
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
// node, and meanwhile answers clients on ln why it is not ready.
func identify(ctx context.Context, s *config.Settings, ln net.Listener, steps *node.StepFault, log *slog.Logger) (member uint64, join *node.Join, err error) {
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
		return 0, nil, errors.Join(fmt.Errorf("the data directory %s was restored from a backup and forms a cluster: start it without JOIN", s.DataDir), err)
	}
	steps.Reached("join begun")
	out, err := outward(s)
	if err != nil {
		return 0, nil, err
	}
	j, err := awaitJoining(ctx, s, out.client(operatorTransport()), ln, log, member, id)
	if err != nil {
		return 0, nil, err
	}
	steps.Reached("join told")
	cluster, err := isotone.ParseClusterID(j.ClusterID)
	if err != nil {
		return 0, nil, fmt.Errorf("JOIN: %w", err)
	}
	if id.ClusterID != 0 && id.ClusterID != uint64(cluster) {
		return 0, nil, fmt.Errorf("JOIN names nodes of cluster %v, but the data directory %s was made to join cluster %v: delete it, or name nodes of that cluster",
			cluster, s.DataDir, isotone.ClusterID(id.ClusterID))
	}
	log.Info("joining a cluster", "node", s.NodeID, "cluster", j.ClusterID, "members", len(j.Peers))
	return j.MemberID, &node.Join{ClusterID: uint64(cluster), Peers: j.Peers}, nil
}

// awaitJoining asks the nodes in JOIN until one says how to join. A directory that was made
// to join, and was not let in before the process ended, goes on as the member in it.
func awaitJoining(ctx context.Context, s *config.Settings, client *http.Client, ln net.Listener, log *slog.Logger, member uint64, id storage.Identity) (front.Joining, error) {
	var reason atomic.Pointer[string]
	told := "waiting to join a cluster"
	first := told
	reason.Store(&first)
	closeWaiting := serveWaiting(ln, &reason)
	defer closeWaiting()
	tellReady(first, log)
	for {
		j, err := askToJoin(ctx, s, client, member, id)
		if err == nil {
			return j, nil
		}
		if text := "not a member yet: " + err.Error(); text != told {
			told = text
			reason.Store(&text)
			log.Warn("waiting to join a cluster", "node", s.NodeID, "why", err.Error())
		}
		timer := time.NewTimer(joinRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return front.Joining{}, errStoppedJoining
		case <-timer.C:
		}
	}
}

var errStoppedJoining = errors.New("stopped before the cluster let this node join")

// askToJoin asks each node in JOIN once.
func askToJoin(ctx context.Context, s *config.Settings, client *http.Client, member uint64, id storage.Identity) (front.Joining, error) {
	var failures []string
	for _, addr := range s.Join {
		asking, cancel := context.WithTimeout(ctx, joinTimeout)
		base := addr
		if !strings.Contains(base, "://") {
			base = "http://" + base
		}
		answer, _, err := ask(asking, client, http.MethodGet, fmt.Sprintf("%s/admin/join?node=%d&incarnation=%d", base, s.NodeID, id.Incarnation), nil)
		cancel()
		var j front.Joining
		if err == nil {
			err = json.Unmarshal(answer, &j)
		}
		if err == nil && id.NodeID != 0 && j.MemberID != member {
			err = fmt.Errorf("the data directory %s was made for another generation of this node: delete it", s.DataDir)
		}
		if err == nil {
			return j, nil
		}
		failures = append(failures, fmt.Sprintf("%s: %v", addr, err))
	}
	return front.Joining{}, errors.New(strings.Join(failures, "; "))
}

// serveWaiting answers clients on ln until the returned function is called: /up is ok,
// everything else is unavailable for that reason.
func serveWaiting(ln net.Listener, reason *atomic.Pointer[string]) (stop func()) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return func() {}
	}
	server := &http.Server{
		ReadHeaderTimeout: joinTimeout, ReadTimeout: joinTimeout, WriteTimeout: joinTimeout, IdleTimeout: joinTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/up" || r.URL.Path == "/livez" {
				_, _ = w.Write([]byte("ok"))
				return
			}
			w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(httpapi.Body(isotone.CodeNoLeader, *reason.Load()))
		}),
	}
	server.SetKeepAlivesEnabled(false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(lentListener{tcp}) // returns ErrServerClosed
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-ended
		_ = tcp.SetDeadline(time.Time{})
	}
}

// lentListener is a listener that outlives the server it is lent to.
type lentListener struct{ *net.TCPListener }

// Close ends accepting, but leaves the listener open.
func (l lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
