//go:build linux

package trial

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
)

// StartProxy runs isotone proxy in front of the nodes that a cluster has now, and returns its
// address.
func StartProxy(t *testing.T, c *chaos.Cluster) string {
	t.Helper()
	port, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := chaos.Run("proxy", c.Dir+"/proxy.log", nil, []string{Binary, "proxy", "--node", strings.Join(c.Addrs(), ","), "--listen", addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Term(); err != nil {
			t.Error(err)
		}
		if code, err := p.WaitExit(chaos.ExitTimeout); err != nil || code != 0 {
			t.Errorf("the proxy: exit code %d, %v", code, err)
		}
		if t.Failed() {
			t.Logf("the log of the proxy: %s", p.Log())
		}
	})
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		for _, path := range []string{"/ready", "/api/snowflake"} {
			if a, err := chaos.Get(addr, path, AnswerTimeout); err != nil || a.Status != 200 {
				return false, fmt.Sprintf("%s of the proxy: %v, %v", path, a, err)
			}
		}
		return true, ""
	})
	return addr
}
