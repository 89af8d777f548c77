//go:build linux

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/strace"
)

// injectSyncs is [strace.Inject] for a running node, until the end of the test at the latest.
func injectSyncs(t testing.TB, n *Node, how string) *child.Process {
	t.Helper()
	tracer, err := strace.Inject(n.proc.Process, n.logPath+".strace.log", how)
	n.do(err)
	t.Cleanup(func() {
		if !tracer.Exited() {
			n.do(strace.Detach(tracer))
		}
	})
	return tracer
}

// DelaySyncs has every fsync and fdatasync of a node take so much longer from its next start on. It
// skips the test where strace is missing or not permitted. Only these calls are traced, so that all
// others are as fast as ever.
func DelaySyncs(t testing.TB, n *Node, delay time.Duration) {
	t.Helper()
	if denied := strace.Denied(); denied != "" {
		t.Skip(denied)
	}
	n.Prefix = []string{
		"strace", "--daemonize", "--follow-forks", "--seccomp-bpf", "-qq", "--output=/dev/null", "--trace=fsync,fdatasync",
		fmt.Sprintf("--inject=fsync,fdatasync:delay_exit=%d", delay.Microseconds()),
	}
}

// FailSyncs makes every fsync and fdatasync of a running node fail with EIO from now
// on, until the node ends. It needs strace and the right to attach it, and skips the
// test where one is missing.
func FailSyncs(t testing.TB, n *Node) {
	t.Helper()
	if denied := strace.Denied(); denied != "" {
		t.Skip(denied)
	}
	n.do(strace.Attached(injectSyncs(t, n, "error=EIO"), n.proc.Process))
}
