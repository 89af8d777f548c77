package driver

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/cluster"
)

// Remove has the operator's command do it.
func (s *isotoneSystem) Remove(_ int, start Command, deadline time.Time) error {
	return s.member(start, deadline, "remove", setting(start, "NODE_ID"), "--yes")
}

// Add gives the node an ID that the cluster has never used, as each is used once: the present one and the number of nodes.
func (s *isotoneSystem) Add(node int, start Command, deadline time.Time) (Command, error) {
	id, err := strconv.Atoi(setting(start, "NODE_ID"))
	if err != nil {
		return start, Errorf(Invalid, "NODE_ID of node %d: %v", node, err)
	}
	next := strconv.Itoa(id + len(s.conns.addresses))
	if err := os.RemoveAll(setting(start, "DATA_DIR")); err != nil {
		return start, err
	}
	if err := s.member(start, deadline, "add", next, setting(start, "RAFT_ADDR")); err != nil {
		return start, err
	}
	others := slices.Delete(slices.Clone(s.conns.addresses), node, node+1)
	start.Env = slices.DeleteFunc(slices.Clone(start.Env), func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return slices.Contains([]string{"NODE_ID", "PEERS", "JOIN"}, name)
	})
	start.Env = append(start.Env, "NODE_ID="+next, "JOIN="+strings.Join(others, ","))
	return start, nil
}

// member runs "isotone member". What it says when it fails is the error.
func (s *isotoneSystem) member(start Command, deadline time.Time, args ...string) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(time.Second)) // it ends by itself before
	defer cancel()
	args = append([]string{"member"}, append(args, "--endpoint", strings.Join(s.conns.addresses, ","), "--timeout", time.Until(deadline).String())...)
	cmd := exec.CommandContext(ctx, start.Command[0], args...)
	cmd.Env = cluster.Inherited()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Errorf(Unavailable, "%s: %v", bytes.TrimSpace(out), err)
	}
	return nil
}

// setting returns the value that a node was started with.
func setting(start Command, name string) string {
	for _, setting := range start.Env {
		if value, ok := strings.CutPrefix(setting, name+"="); ok {
			return value
		}
	}
	return ""
}
