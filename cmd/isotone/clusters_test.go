package main

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

// TestStatusAndDoctor_NoticeNodesThatAreNoCluster: machines without settings are all node 1.
func TestStatusAndDoctor_NoticeNodesThatAreNoCluster(t *testing.T) {
	t.Parallel()
	a, b := newProcess(t, 1), newProcess(t, 1)
	for _, p := range []*process{a, b} {
		p.start()
		await.Done(t, await.Timeout, func() (bool, string) { // what a node tells of itself may be a second old
			code, _, text := command("status", p.s.AdvertiseAddr)
			return code == 0, text
		})
	}
	addrs := processes{a, b}.addrs()
	wantRun(t, exitFailure, "1 of 1 members answer", " is no member of cluster ", append([]string{"status"}, addrs...)...)
	wantRun(t, exitFailure, " is no member of cluster ", "", "doctor", "--endpoint", strings.Join(addrs, ","))
}
