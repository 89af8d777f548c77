package server_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/pd"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/server"
)

func groupsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "groups.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// groupRequest asks n for a count of timestamps of a keyspace.
func groupRequest(n *testnode.Node, keyspace, count uint64) []byte {
	header := grpc.AppendVarint(grpc.AppendVarint(nil, 1, n.Member.Node.Status().ClusterID), 3, keyspace)
	return grpc.AppendVarint(grpc.AppendText(nil, 1, header), 2, count)
}

// Groups are split as the runbook says, and have quotas.
func TestPD_KeyspaceGroupsAreTimelines(t *testing.T) {
	file := groupsFile(t, `{"groups": [{"id": 3, "keyspaces": ["100-199"]}, {"id": 4, "keyspaces": ["100-199"]}]}`)
	n := testnode.Guarded(t, "", withPD(func(s *config.Settings) { s.Timelines, s.PDKeyspaceGroups = true, file }))
	change := func(c front.TimelineChange) {
		t.Helper()
		if _, err := n.Member.Node.ChangeTimelines(rig.Soon(t), c); err != nil {
			t.Fatal(err)
		}
	}
	call := func(method string, request []byte, wantStatus string) string {
		t.Helper()
		message, status, err := pdCall(t, n.Member.PDAddr, method, nil, request)
		if err != nil || status != wantStatus {
			t.Errorf("%s: %x, status %s, %v; want status %s", method, message, status, err, wantStatus)
		}
		return string(message)
	}
	keyspace := grpc.AppendVarint(nil, 2, 100)
	isServed := func(group uint32) {
		t.Helper()
		status := n.Member.Node.Status()
		host, _, _ := strings.Cut(status.Members[0].Addr, ":")
		url := "http://" + host + n.Member.PDAddr[strings.LastIndex(n.Member.PDAddr, ":"):]
		want := string(pd.AppendGroup(nil, status.ClusterID, group, []string{url}, 0, nil))
		await.Until(t, fmt.Sprintf("group %d has an owner", group), func() bool { return call("tsopb.TSO/FindGroupByKeyspaceID", keyspace, "0") == want })
		await.Until(t, fmt.Sprintf("group %d issues timestamps", group), func() bool { // at first its time is ahead of the clock
			got, status, err := pdCall(t, n.Member.PDAddr, "tsopb.TSO/Tso", nil, groupRequest(n, 100, 1))
			return err == nil && status == "0" && strings.Contains(string(got), string(grpc.AppendVarint(grpc.AppendVarint(nil, 3, 100), 4, uint64(group))))
		})
	}
	isNotServed := func(why string) {
		t.Helper()
		if got := call("tsopb.TSO/FindGroupByKeyspaceID", keyspace, "0"); !strings.Contains(got, why) {
			t.Errorf("got %q, want %q", got, why)
		}
		call("tsopb.TSO/Tso", groupRequest(n, 100, 1), "14")
	}
	isNotServed("there is no timeline pd/3")
	change(front.TimelineChange{Action: front.CreateTimelines, Names: []string{"pd/3"}})
	isServed(3)
	change(front.TimelineChange{Action: front.SealTimeline, Names: []string{"pd/3"}})
	isNotServed("there is no timeline pd/4")
	sealed, err := n.Member.Node.Timelines("pd/3", "", 1)
	if err != nil || sealed.Timelines[0].Bound == 0 {
		t.Fatal(sealed, err)
	}
	change(front.TimelineChange{Action: front.CreateTimelines, Names: []string{"pd/4"}, Time: strconv.FormatUint(sealed.Timelines[0].Bound, 10)})
	isServed(4)
	change(front.TimelineChange{Action: front.LimitTimeline, Names: []string{"pd/4"}, Quota: front.TimelineQuota{Timestamps: 1}})
	call("tsopb.TSO/Tso", groupRequest(n, 100, 100), "0") // as much as 100 s have
	call("tsopb.TSO/Tso", groupRequest(n, 100, 1), "8")
	call("pdpb.PD/Tso", tsoRequest(n), "0") // the default order, as ever
}

func TestPD_ABadFileOfKeyspaceGroupsIsRefusedAtTheStart(t *testing.T) {
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.DataDir, s.ThriftPort = "127.0.0.1", 0, "127.0.0.1:0", t.TempDir(), config.PortOff
	s.PDPort, s.Timelines, s.PDKeyspaceGroups = 0, true, groupsFile(t, `{"groups": [{"id": 0}]}`)
	so, err := server.Listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := server.Start(&s, so, server.Options{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "PD_KEYSPACE_GROUPS: ") || !strings.Contains(err.Error(), "group 0") {
		t.Errorf("%v, %v; want what is wrong with the file", m, err)
	}
}
