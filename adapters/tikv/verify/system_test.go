//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// TestSystem_ItAsksByTheProtocolOfPD asks a node of this repository: PD's server takes minutes to build.
func TestSystem_ItAsksByTheProtocolOfPD(t *testing.T) {
	dir := t.TempDir()
	binary, err1 := cluster.Build(t.Context(), dir)
	port, err2 := ports.Free(1)
	nodes, err3 := cluster.New(1, dir, []string{binary}, fmt.Sprint("PD_PORT=", port))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer nodes.Kill()
	if err := errors.Join(nodes.Start(), nodes.WaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	s := &system{}
	defer s.Close()
	if err := s.Connect([]string{fmt.Sprint("127.0.0.1:", port)}, nil); err != nil {
		t.Fatal(err)
	}
	await.Done(t, await.Timeout, func() (bool, string) {
		err := s.Ready(0, time.Now().Add(time.Second))
		return err == nil, fmt.Sprint(err)
	})
	var last isotone.Timestamp
	for _, count := range []uint64{1, 1000, 1} {
		first, err := s.Ask(0, count, time.Now().Add(await.Timeout))
		if err != nil || !last.Before(first) || first.Time != 0 {
			t.Errorf("%v, %v: want more than %v", first, err, last)
		}
		last.Index = first.Index + count - 1
	}
	if err := nodes.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Ask(0, 1, time.Now().Add(await.Timeout))
	var known *driver.Error
	if !errors.As(err, &known) || known.Kind != driver.Unavailable {
		t.Errorf("a node that has ended: %v", err)
	}
}

func TestSystem_ThePlanHasServersThatKnowEachOther(t *testing.T) {
	server := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(server, []byte("#!/bin/sh\necho Release Version: v8\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	options := map[string]string{"binary": server, "lease": "7"}
	where := driver.PlanRequest{Dir: "/data", Nodes: []driver.NodeSpot{{Host: "10.0.0.1", Ports: []int{1, 2}}, {Host: "10.0.0.2", Ports: []int{3, 4}}}}
	p, err := (&system{}).Plan(where, options)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(p.Nodes[1].Command.Command[1:], " ") + " at " + p.Nodes[1].Address
	want := "--name pd1 --data-dir /data/pd1 -L warn --client-urls http://10.0.0.2:3 --peer-urls http://10.0.0.2:4 " +
		"--initial-cluster pd0=http://10.0.0.1:2,pd1=http://10.0.0.2:4 --lease 7 at 10.0.0.2:3"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if h, err := (&system{}).Hello(options); err != nil || h.Version != "v8" {
		t.Errorf("%+v, %v: want version v8", h, err)
	}
	if _, err := (&system{}).Plan(where, map[string]string{"binary": server + "x"}); err == nil {
		t.Error("a server that there is not was planned")
	}
}
