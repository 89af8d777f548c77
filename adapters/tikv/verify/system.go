package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// system is a cluster of PD.
type system struct{ nodes []*node }

var options = map[string]string{
	"binary": "the server (pd-server)",
	"lease":  "the seconds of a leader's lease (PD's default is 3)",
}

func binary(options map[string]string) string {
	if b := options["binary"]; b != "" {
		return b
	}
	return "pd-server"
}

func (*system) Hello(given map[string]string) (driver.Hello, error) {
	h := driver.Hello{System: "pd", Promises: "real-time", CountMax: 1 << 12, Nodes: 3, NodesMax: 7, Ports: 2, Options: options}
	if out, err := exec.Command(binary(given), "-V").Output(); err == nil {
		_, version, _ := strings.Cut(string(out), "Release Version:")
		version, _, _ = strings.Cut(version, "\n")
		h.Version = strings.TrimPrefix(strings.TrimSpace(version), "None") // without the flags of its Makefile
	}
	return h, nil
}

func (*system) Plan(where driver.PlanRequest, given map[string]string) (p driver.Plan, err error) {
	path, err := exec.LookPath(binary(given))
	if err != nil {
		return p, driver.Errorf(driver.Invalid, "%v: option binary names it", err)
	}
	url := func(node, port int) string {
		return fmt.Sprintf("http://%s:%d", where.Nodes[node].Host, where.Nodes[node].Ports[port])
	}
	var initial []string
	for i := range where.Nodes {
		initial = append(initial, fmt.Sprintf("pd%d=%s", i, url(i, 1)))
	}
	for i := range where.Nodes {
		name := fmt.Sprintf("pd%d", i)
		command := []string{
			path, "--name", name, "--data-dir", filepath.Join(where.Dir, name), "-L", "warn", "--client-urls", url(i, 0),
			"--peer-urls", url(i, 1), "--initial-cluster", strings.Join(initial, ","),
		}
		if seconds := given["lease"]; seconds != "" {
			command = append(command, "--lease", seconds)
		}
		p.Nodes = append(p.Nodes, driver.NodeCommand{Command: driver.Command{Command: command}, Address: strings.TrimPrefix(url(i, 0), "http://")})
	}
	return p, nil
}

func (s *system) Connect(addresses []string, _ map[string]string) error {
	for _, address := range addresses {
		n, err := newNode(address)
		if err != nil {
			return driver.Errorf(driver.Invalid, "%s: %v", address, err)
		}
		s.nodes = append(s.nodes, n)
	}
	return nil
}

// Ready holds for a node that knows who leads.
func (s *system) Ready(node int, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	members, err := s.nodes[node].client.GetMembers(ctx, &pdpb.GetMembersRequest{})
	switch {
	case err != nil:
		return refusal(err)
	case members.GetLeader().GetMemberId() == 0:
		return driver.Errorf(driver.Unavailable, "it knows no leader")
	}
	return nil
}

// Ask returns timestamps as 64-bit numbers: PD's answer has the last one.
func (s *system) Ask(node int, count uint64, deadline time.Time) (first isotone.Timestamp, err error) {
	answer, err := s.nodes[node].ask(uint32(count), deadline)
	if err != nil {
		return first, refusal(err)
	}
	if failed := answer.GetHeader().GetError(); failed != nil {
		return first, driver.Errorf(driver.Unavailable, "%.100s", failed.GetMessage())
	}
	last := answer.GetTimestamp()
	physical, logical := last.GetPhysical(), last.GetLogical()
	if physical <= 0 || logical < int64(count)-1 || logical >= isotone.Range64CountMax || uint64(answer.GetCount()) != count {
		return first, driver.Errorf(driver.Malformed, "(%d, %d), %d timestamps", physical, logical, answer.GetCount())
	}
	first.Index = uint64(isotone.NewTimestamp64(uint64(physical), uint64(logical))) - (count - 1)
	return first, nil
}

func (s *system) Close() {
	for _, n := range s.nodes {
		n.close()
	}
}
