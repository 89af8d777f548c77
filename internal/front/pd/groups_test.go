package pd_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/pd"
)

// groupsFile writes a file of keyspace groups.
func groupsFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "groups.json")
	rewrite(t, path, text)
	return path
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openGroups(t *testing.T, text string) *pd.Groups {
	t.Helper()
	g, err := pd.OpenGroups(groupsFile(t, text), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// table has timelines by name.
type table map[string]front.TimelineState

func (t table) Timeline(name string) (front.TimelineState, bool) {
	state, ok := t[name]
	return state, ok
}

// find asks which group a keyspace is in, and who serves it.
func find(t *testing.T, cfg pd.Config, keyspace uint64) (answer string) {
	t.Helper()
	request := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), keyspace)
	answer, status, _ := post(t, cfg, "/tsopb.TSO/FindGroupByKeyspaceID", string(grpc.EndFrame(append(grpc.BeginFrame(nil), request...), 0)), false)
	if status != "0" {
		t.Errorf("keyspace %d: status %s", keyspace, status)
	}
	return answer
}

// groupAnswer is what threeNodes answers: the URLs of its voters, and which one serves.
func groupAnswer(id uint32, primary int) string {
	return string(pd.AppendGroup(nil, testCluster, id, []string{"http://a:10000", "http://[::1]:10001"}, primary, nil))
}

func groupsConfig(g *pd.Groups, have table) pd.Config {
	return pd.Config{Status: threeNodes, Port: 10_000, ClientPort: 8080, Groups: g, Timelines: have}
}

func TestGroups_KeyspacesAreInThemByIDOrRange(t *testing.T) {
	g := openGroups(t, `{"groups": [{"id": 3, "keyspaces": ["100-199", "7", "9", "8"]}, {"id": 70000, "keyspaces": ["16777215", "200-300"]}, {"id": 9, "keyspaces": []}]}`)
	cfg := groupsConfig(g, table{"pd/3": {NodeID: 1}, "pd/70000": {NodeID: 2}})
	for want, keyspaces := range map[string][]uint64{
		groupAnswer(0, 1):     {0, 1, 6, 10, 99, 301, 16777214, 16777216, 1<<32 - 1}, // the leader serves these
		groupAnswer(3, 0):     {7, 8, 9, 100, 150, 199},
		groupAnswer(70000, 1): {200, 250, 300, 16777215},
	} {
		for _, k := range keyspaces {
			if got := find(t, cfg, k); got != want {
				t.Errorf("keyspace %d: %q, want %q", k, got, want)
			}
		}
	}
}

func TestGroups_WhoServesFollowsTheTimelines(t *testing.T) {
	g := openGroups(t, `{"groups": [{"id": 3, "keyspaces": ["100-199"]}, {"id": 4, "keyspaces": ["100-149"]}, {"id": 5, "keyspaces": ["150-199"]}, {"id": 6, "keyspaces": ["100-199"]}]}`)
	const both = "100 150"
	for _, c := range []struct {
		name      string
		have      table
		keyspaces string
		want      string
	}{
		{"none is sealed", table{"pd/3": {NodeID: 1}, "pd/4": {NodeID: 2}, "pd/5": {NodeID: 2}}, both, groupAnswer(3, 0)},
		{"the first one is not there", table{"pd/4": {NodeID: 2}, "pd/5": {NodeID: 2}}, both, "there is no timeline pd/3; create it with: isotone timeline create pd/3"},
		{"split", table{"pd/3": {Bound: 9}, "pd/4": {NodeID: 1, Base: 9}, "pd/5": {NodeID: 2, Base: 10}}, "100", groupAnswer(4, 0)},
		{"split", table{"pd/3": {Bound: 9}, "pd/4": {NodeID: 1, Base: 9}, "pd/5": {NodeID: 2, Base: 10}}, "150", groupAnswer(5, 1)},
		{"not above yet", table{"pd/3": {Bound: 9}, "pd/4": {NodeID: 1, Base: 8}, "pd/5": {NodeID: 2, Base: 10}}, "100", "group 4 is not served: it follows group 3, and is not above it yet; raise it with: isotone timeline floor pd/4 1970-01-01T00:00:00.000000009Z"},
		{"the next one is not there", table{"pd/3": {Bound: 9}}, "150", "there is no timeline pd/5"},
		{"two are sealed, and the first has the larger bound", table{"pd/3": {Bound: 9}, "pd/4": {Bound: 7}, "pd/6": {NodeID: 1, Base: 8}}, "100", "group 6 is not served"},
		{"two are sealed, and the last is above", table{"pd/3": {Bound: 9}, "pd/4": {Bound: 11}, "pd/6": {NodeID: 1, Base: 11}}, "100", groupAnswer(6, 0)},
		{"all are sealed", table{"pd/3": {Bound: 9}, "pd/4": {Bound: 9}, "pd/6": {Bound: 9}}, "100", "keyspace 100 is not served: group 6 is sealed"},
		{"without an owner", table{"pd/3": {}}, both, groupAnswer(3, -1)},
		{"the owner has no address", table{"pd/3": {NodeID: 4}}, both, groupAnswer(3, -1)},
		{"a learner owns it", table{"pd/3": {NodeID: 3}}, "100", string(pd.AppendGroup(nil, testCluster, 3, []string{"http://a:10000", "http://[::1]:10001", "http://c:10920"}, 2, nil))},
	} {
		for text := range strings.FieldsSeq(c.keyspaces) {
			var keyspace uint64
			_, _ = fmt.Sscan(text, &keyspace)
			if got := find(t, groupsConfig(g, c.have), keyspace); got != c.want && (strings.Contains(c.want, "http://") || !strings.Contains(got, c.want)) {
				t.Errorf("%s: keyspace %d: %q, want %q", c.name, keyspace, got, c.want)
			}
		}
	}
}

func TestGroups_AFileWithFaultsIsRefused(t *testing.T) {
	many := func(format string, n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(format, i+1))
		}
		return strings.Join(parts, ",")
	}
	for text, want := range map[string][]string{
		``:                       {`want {"groups":`},
		`[]`:                     {`want {"groups":`},
		`{"groups": [], "x": 1}`: {`unknown field "x"`},
		`{"groups": []} {}`:      {"something follows"},
		`{"groups": [{"id": 0, "keyspaces": ["0"]}, {"id": 1, "keyspaces": ["x"]}, {"id": 1, "keyspaces": []}]}`: {"group 0: it is the default order", `group 1: keyspaces "x"`, "group 1: it is named twice"},
		`{"groups": [{"id": 1, "keyspaces": ["0"]}]}`:                                                            {"keyspace 0 stays in group 0"},
		`{"groups": [{"id": 1, "keyspaces": ["9-8"]}]}`:                                                          {`"9-8"`},
		`{"groups": [{"id": 1, "keyspaces": ["16777216"]}]}`:                                                     {"from 1 to 16777215"},
		`{"groups": [{"id": 1, "keyspaces": ["-1"]}]}`:                                                           {`"-1"`},
		`{"groups": [{"id": -1}]}`:                                                                               {"want"},
		`{"groups": [` + many(`{"id": %d, "keyspaces": ["1-9"]}`, 9) + `]}`:                                      {"keyspace 1 is in more than 8 ranges"},
		`{"groups": [` + many(`{"id": %d}`, 4097) + `]}`:                                                         {"4097 groups"},
		`{"groups": [{"id": 1, "keyspaces": [` + many(`"%d"`, 65537) + `]}]}`:                                    {"more than 65536 ranges"},
		`{"groups": []` + strings.Repeat(" ", 4<<20) + `}`:                                                       {"more than 4194304 bytes"},
	} {
		_, err := pd.OpenGroups(groupsFile(t, text), slog.New(slog.DiscardHandler))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%.80s: %v, want %q", text, err, w)
			}
		}
	}
	if _, err := pd.OpenGroups(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a file that is not there is accepted")
	}
}

// Overlapping ranges are cut where one begins or ends, and no keyspace is lost.
func TestGroups_OverlapsKeepTheOrderOfTheFile(t *testing.T) {
	g := openGroups(t, `{"groups": [{"id": 1, "keyspaces": ["10-20", "15-30"]}, {"id": 2, "keyspaces": ["5-12", "30-31"]}, {"id": 3, "keyspaces": ["20", "1-40"]}]}`)
	groups := func(k uint64) (in []uint32) {
		if k >= 10 && k <= 30 {
			in = append(in, 1)
		}
		if k >= 5 && k <= 12 || k == 30 || k == 31 {
			in = append(in, 2)
		}
		if k >= 1 && k <= 40 {
			in = append(in, 3)
		}
		return in
	}
	for k := range uint64(50) {
		have := table{}
		for _, id := range groups(k) { // each but the last is sealed in turn
			have[fmt.Sprint("pd/", id)] = front.TimelineState{NodeID: 1, Base: 5}
			if got := find(t, groupsConfig(g, have), k); got != groupAnswer(id, 0) {
				t.Errorf("keyspace %d: %q, want group %d", k, got, id)
			}
			have[fmt.Sprint("pd/", id)] = front.TimelineState{Bound: 5}
		}
		if got := find(t, groupsConfig(g, have), k); len(have) == 0 && got != groupAnswer(0, 1) {
			t.Errorf("keyspace %d: %q, want group 0", k, got)
		}
	}
}

func TestGroups_TheFileIsReadAgain(t *testing.T) {
	path := groupsFile(t, `{"groups": []}`)
	var log bytes.Buffer
	g, err := pd.OpenGroups(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := groupsConfig(g, table{"pd/3": {NodeID: 1}})
	g.Check()
	const one = `{"groups": [{"id": 3, "keyspaces": ["7"]}]}`
	for i, text := range []string{one, `{"groups": [{"id": 0}]}`, `{`, one} { // bad ones change nothing, and are logged once
		rewrite(t, path, text)
		g.Check()
		g.Check()
		if got := find(t, cfg, 7); got != groupAnswer(3, 0) {
			t.Errorf("file %d: %q", i, got)
		}
	}
	if text := log.String(); strings.Count(text, "have changed") != 1 || strings.Count(text, "cannot be used") != 1 {
		t.Errorf("the log has\n%s; want one change and one complaint", text)
	}
	rewrite(t, path, `{"groups": []}`)
	if g.Check(); find(t, cfg, 7) != groupAnswer(0, 1) {
		t.Error("the keyspace is still in its group")
	}
}

func TestGroups_ClientsAreToldWhereTimestampsAre(t *testing.T) {
	cfg := groupsConfig(openGroups(t, `{"groups": []}`), nil)
	want := string(pd.AppendClusterInfo(nil, testCluster, []string{"http://a:10000", "http://[::1]:10001"}, nil))
	if got, _, _ := post(t, cfg, "/pdpb.PD/GetClusterInfo", empty, false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, path := range []string{"/pdpb.PD/GetClusterInfo", "/tsopb.TSO/FindGroupByKeyspaceID"} {
		if got, _, _ := post(t, cfg, path, empty, true); strings.Count(got, "https://") != 2 || strings.Contains(got, "http://") {
			t.Errorf("%s over TLS: %q, want addresses with TLS", path, got)
		}
	}
	for _, path := range []string{"/pdpb.PD/GetMinTS", "/tsopb.TSO/GetMinTS"} {
		if got, status, _ := post(t, cfg, path, empty, false); status != "0" || !strings.Contains(got, "GetMinTS is not served here") || strings.Contains(got, "Unimplemented") {
			t.Errorf("%s: status %s, %q", path, status, got)
		}
	}
	if got, status, _ := post(t, cfg, "/tsopb.TSO/FindGroupByKeyspaceID", "\x00\x00\x00\x00\x01\xff", false); status != "0" || !strings.Contains(got, "protobuf") {
		t.Errorf("no protobuf: status %s, %q", status, got)
	}
	cfg.Status = func() *front.Status { return &front.Status{} }
	if got := find(t, cfg, 7); !strings.Contains(got, "does not know the ID") {
		t.Errorf("without a cluster: %q", got)
	}
	for _, path := range []string{"/tsopb.TSO/FindGroupByKeyspaceID", "/pdpb.PD/GetMinTS"} { // as ever without keyspace groups
		if _, status, _ := post(t, pd.Config{Status: threeNodes}, path, empty, false); status != "12" {
			t.Errorf("%s without keyspace groups: status %s", path, status)
		}
	}
}
