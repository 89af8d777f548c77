package leaderelection

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/isotone/isotone/adapters/k8slease/testdata/clientgo/resourcelock"
	"github.com/isotone/isotone/client"
)

// TestMain has client-go's tests use a cluster of Isotone, whose nodes are those of K8SLEASE_NODES.
func TestMain(m *testing.M) {
	c, err := client.New(context.Background(), strings.Split(os.Getenv("K8SLEASE_NODES"), ",")...)
	if err != nil {
		panic(err)
	}
	resourcelock.Cluster = c
	code := m.Run()
	_ = c.Close()
	os.Exit(code)
}
