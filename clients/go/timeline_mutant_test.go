//go:build mutants

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
)

// timelineMutants are bugs of the Go client with timelines, which the rules of clients do not have. Instead of a scenario, a test of package client
// notices each.
var timelineMutants = []mutant{
	{"a timeline has the floor of the default order", "client/timeline.go", "floor: &floor{}}", "floor: &t.client.floor}", "TestTimeline_FloorsAreItsOwn"},
	{"the floor of a timeline is carried once on a connection for all", "client/conn.go", "		answered = cn.told[b.order]\n", "		answered = len(cn.told) > 0\n", "TestTimeline_FloorsAreItsOwn"},
	{"answers of timelines are not checked", "client/floor.go", "b.kind == kindID || ", "b.kind == kindID || b.order.timeline != nil || ", "TestTimeline_FloorsAreItsOwn"},
	{"a refused timeline is taken for a refused option", "client/trace.go", " || b.order.timeline != nil:", ":", "TestTimeline_OlderNodesRefuseItAlone"},
	{"an unknown timeline is asked for again", "client/exchange.go", "isotone.CodeNotLeader, isotone.CodeNoLeader,", "isotone.CodeNotFound, isotone.CodeNotLeader, isotone.CodeNoLeader,", "TestTimeline_UnknownAndSealedAreNotFound"},
	{"a timeline is taken for the default order", "client/conn.go", "appendOption(line, \"TIMELINE\", b.order.timeline.name)", "b.line", "TestTimeline_EachHasItsOrderAndItsOwner"},
	{"redirects are not paced", "client/timeline_search.go", " && line.moves <= search.MovesMax {", " {", "TestTimeline_RedirectsInALoopArePaced"},
	{"refusals are not paced", "client/timeline_search.go", "backoffTo(o.timeline.failures, most))", "backoffTo(o.timeline.failures, most)/1000)", "TestTimeline_RedirectsInALoopArePaced"},
	{"timelines follow the leader", "client/router.go", "	r.publish()\n	leader := r.search.Leader()\n", "	r.publish()\n	leader := r.search.Leader()\n	for _, p := range r.c.timelines.pools() {\n		for _, cn := range r.conns(p) {\n			_ = cn.netConn.Close()\n		}\n	}\n", "TestTimeline_NeedsNoLeader"},
	{"a silent owner is waited for", "client/router_timeline.go", "	for _, other := range r.conns(cn.pool) {\n", "	for _, other := range r.conns(cn.pool)[:0] {\n", "TestTimeline_FollowsItsOwner"},
	{"what waits for an owner that is gone waits on", "client/timeline_search.go", "	if p.node.conns == 0 {\n		waiting", "	if false {\n		waiting", "TestTimeline_FollowsItsOwner"},
	{"timelines outlive their client", "client/client.go", "		c.timelines.close()\n", "", "TestTimeline_EndsWithItsClient"},
	{"any number of timelines is kept", "client/timeline.go", "len(t.orders) >= TimelinesMax", "false", "TestTimeline_BadNamesAndTooManyAreErrorsOfCalls"},
	{"names of no timeline are kept", "client/timeline.go", " && !t.makeRoom() {", " {", "TestTimeline_NamesOfNoneMakeRoom"},
	{"a timeline that was answered is forgotten", "client/timeline.go", "if o.floor.now() == (isotone.Timestamp{}) && ", "if ", "TestTimeline_NamesOfNoneMakeRoom"},
	{"a quota of one timeline is one of its node", "client/conn.go", "refusal.Code == isotone.CodeQuotaExceeded && b.order.timeline != nil:", "false:", "TestTimeline_OneOverItsQuotaDelaysNoOther"},
}

// TestMutants_OfTimelinesAreNoticed: each bug makes its test fail.
func TestMutants_OfTimelinesAreNoticed(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	right, command := programs(t, root, timelineMutants, "test", "-c", "-vet=off", "./client")
	run := func(t *testing.T, scenario string, program ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, program[0], append(program[1:], "-test.run", "^("+scenario+")$", "-test.timeout", timelineTimeout.String())...)
		cmd.Dir = filepath.Join(root, "client")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var tests []string
	for _, m := range timelineMutants {
		tests = append(tests, m.scenario)
	}
	if out, err := run(t, strings.Join(tests, "|"), right); err != nil {
		t.Fatalf("without a bug: %v, %s", err, out)
	}
	for _, m := range timelineMutants {
		t.Run(m.testName(), func(t *testing.T) {
			t.Parallel()
			out, err := run(t, m.scenario, command(t, m)...)
			if err == nil || !strings.Contains(out, "--- FAIL: "+m.scenario) && !strings.Contains(out, "panic: test timed out") {
				t.Errorf("%s does not notice that %s: %v, %s", m.scenario, m.name, err, out)
			}
		})
	}
}

// timelineTimeout is longer than any of the tests waits for a call.
const timelineTimeout = 45 * time.Second
