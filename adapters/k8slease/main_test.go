package k8slease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/cluster"
)

// nodes are a cluster of three processes, for all tests.
var nodes *cluster.Cluster

func TestMain(m *testing.M) {
	if identity := os.Getenv(childIdentity); identity != "" {
		beCandidate(identity)
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "k8slease")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	binary, err := cluster.Build(ctx, dir)
	if err != nil {
		return 0, err
	}
	if nodes, err = cluster.New(3, dir, []string{binary}); err != nil {
		return 0, err
	}
	if err = nodes.Start(); err == nil {
		err = nodes.WaitReady(ctx)
	}
	before := goleak.IgnoreCurrent()
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, nodes.Kill()); err == nil && code == 0 {
		err = goleak.Find(before)
	}
	return code, err
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// dial returns a client of all nodes.
func dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(soon(t), nodes.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
