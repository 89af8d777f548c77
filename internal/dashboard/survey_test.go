package dashboard_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/dashboard"
)

// survey returns a survey with its own client, whose connections end with the test.
func survey(t *testing.T, timeout time.Duration) dashboard.Survey {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return dashboard.Survey{Client: &http.Client{Transport: transport}, Timeout: timeout}
}

func ask(t *testing.T, y dashboard.Survey, addrs ...string) *dashboard.Report {
	t.Helper()
	r, err := y.Ask(t.Context(), addrs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSurvey_FindsEveryMemberFromAnyOfThem(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	for _, node := range c.nodes {
		r := ask(t, survey(t, 5*time.Second), node.addr)
		if r.Err() != nil || r.Leader == nil || r.Leader.NodeID != 1 || r.Term != 7 || len(r.Views) != 3 {
			t.Fatalf("from node %d: %+v", node.id, r)
		}
		for i, v := range r.Views {
			if v.NodeID != uint64(i+1) || v.State == nil || v.State.Node.ID != v.NodeID || v.State.History != nil {
				t.Errorf("view %d: %+v", i, v)
			}
		}
	}
	// Several addresses, one of them twice, are still one cluster.
	r := ask(t, survey(t, 5*time.Second), c.nodes[2].addr, "http://"+c.nodes[0].addr+"/", c.nodes[0].addr)
	if len(r.Views) != 3 || r.Err() != nil {
		t.Errorf("%+v", r)
	}
}

func TestSurvey_NamesMembersThatDoNotAnswer(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	c.nodes[0].kill()
	r := ask(t, survey(t, 5*time.Second), c.nodes[1].addr, c.nodes[0].addr)
	if len(r.Views) != 3 || r.Views[0].NodeID != 1 || r.Views[0].State != nil || r.Leader != nil {
		t.Fatalf("%+v", r)
	}
	// A node of this machine that is named in another way is still the same.
	if r := ask(t, survey(t, 5*time.Second), c.nodes[1].addr, strings.Replace(c.nodes[0].addr, "127.0.0.1", "localhost", 1)); len(r.Views) != 3 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"no leader", "node 1 does not answer", "refused", "node 2 is not ready: no leader is known"} {
		if !strings.Contains(r.Err().Error(), want) {
			t.Errorf("%q is missing in: %v", want, r.Err())
		}
	}
	c.elect(2, 300*time.Millisecond)
	r = ask(t, survey(t, 5*time.Second), c.nodes[2].addr)
	if r.Leader == nil || r.Leader.NodeID != 2 || len(r.Problems) != 1 {
		t.Errorf("after the election: %+v", r)
	}
	c.nodes[1].kill()
	c.nodes[2].kill()
	r = ask(t, survey(t, 5*time.Second), c.nodes[2].addr)
	if len(r.Views) != 1 || r.Views[0].NodeID != 0 || !strings.Contains(r.Err().Error(), "the node at http://"+c.nodes[2].addr) {
		t.Errorf("with all members down: %+v", r)
	}
}

// TestSurvey_BelievesTheHighestTerm: a leader that was cut off still claims to lead.
func TestSurvey_BelievesTheHighestTerm(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	c.elect(3, time.Second)
	c.nodes[0].change(func(s *dashboard.State) {
		s.Term, s.Leader, s.Node.Role = 7, &dashboard.Leader{NodeID: 1, Addr: s.Node.Addr}, "leader"
	})
	if r := ask(t, survey(t, 5*time.Second), c.nodes[0].addr); r.Leader == nil || r.Leader.NodeID != 3 || r.Term != 8 {
		t.Errorf("leader %+v in term %d", r.Leader, r.Term)
	}
}

func TestSurvey_NoticesAnotherCluster(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	for i, n := range c.nodes {
		n.change(func(s *dashboard.State) { s.ClusterID = []string{"", "00c0ffee00c0ffee", "00000000deadbeef"}[i] })
	}
	r := ask(t, survey(t, 5*time.Second), c.nodes[0].addr)
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "different clusters: 00000000deadbeef, 00c0ffee00c0ffee") {
		t.Errorf("%v", r.Err())
	}
}

// TestSurvey_WarnsOfClocksThatAreNotBelieved: they are not a problem of the cluster, which
// uses the other clocks.
func TestSurvey_WarnsOfClocksThatAreNotBelieved(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	for _, n := range c.nodes {
		n.change(func(s *dashboard.State) {
			s.Clock.OffsetFromQuorumSeconds, s.Clock.LimitSeconds = pointer(0.0), 0.5
			if n.id == 2 {
				s.Clock.OffsetFromQuorumSeconds, s.Clock.Exceeded = pointer(3600.0), true
			}
			if n.id == 1 {
				s.Members[2].ClockOffsetSeconds = pointer(-0.75)
			}
		})
	}
	wrong2 := "node 2's clock is 1 h ahead of the quorum's: timestamps follow the quorum's clock; correct the node's"
	r := ask(t, survey(t, 5*time.Second), c.nodes[0].addr)
	if err := r.Err(); err != nil || !slices.Equal(r.Warnings, []string{wrong2}) {
		t.Errorf("%v, %q", err, r.Warnings)
	}
	c.nodes[2].kill() // then the others report its clock
	r = ask(t, survey(t, 5*time.Second), c.nodes[0].addr)
	wrong3 := "node 3's clock is 750 ms behind the quorum's: timestamps follow the quorum's clock; correct the node's"
	if !slices.Equal(r.Warnings, []string{wrong2, wrong3}) {
		t.Errorf("a member that does not answer: %q", r.Warnings)
	}
}

func TestSurvey_TellsAClusterThatIsBeingFormed(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	c.elect(0, 0)
	forming := func(s *dashboard.State) {
		s.Node.Forming, s.Node.Role, s.Node.NotReady = true, "follower", "it needs node 3"
		s.Members[1].Addr, s.Members[2].Addr, s.Members[2].Connected = "", "", false
	}
	c.nodes[0].change(forming)
	r := ask(t, survey(t, 5*time.Second), c.nodes[0].addr)
	if !slices.Equal(r.Problems, []string{"node 1 is not ready: it needs node 3"}) {
		t.Errorf("%q", r.Problems)
	}
	var table strings.Builder
	if err := dashboard.WriteTable(&table, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The cluster is being formed; 1 of 3 members answer", "node 1 has reached it ", "not reached "} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is missing in\n%s", want, table.String())
		}
	}
}

func TestSurvey_DoesNotWaitForASilentNode(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	begin := time.Now()
	r := ask(t, survey(t, 150*time.Millisecond), listener.Addr().String())
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "no answer within 150ms") {
		t.Errorf("%v", r.Err())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := survey(t, time.Hour).Ask(ctx, []string{listener.Addr().String()}); err != nil || r.Err() == nil {
		t.Errorf("a context that ended: %+v, %v", r, err)
	}
}

func TestSurvey_RefusesAnswersThatAreNoState(t *testing.T) {
	for _, tc := range []struct {
		status     int
		body, want string
	}{
		{404, "", "answers, but is not a node (perhaps a proxy); name a node instead"},
		{500, "", "500"},
		{200, "hello", "not a state document"},
		{200, `{"node":{}}`, "no node ID"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			fmt.Fprint(w, tc.body)
		}))
		r := ask(t, survey(t, 5*time.Second), server.URL)
		if r.Err() == nil || !strings.Contains(r.Err().Error(), tc.want) {
			t.Errorf("%d %q: %v, want %q", tc.status, tc.body, r.Err(), tc.want)
		}
		server.Close()
	}
}

func TestSurvey_NoticesAnotherNodeAtAMembersAddress(t *testing.T) {
	c := newCluster(t, 3, time.Second)
	c.nodes[0].change(func(s *dashboard.State) { s.Members[1].Addr = c.nodes[2].addr })
	r := ask(t, survey(t, 5*time.Second), c.nodes[0].addr)
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "node 2 does not answer: node 3 answers at its address") {
		t.Errorf("%v", r.Err())
	}
}

func TestAddress_TakesHostsAndURLs(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"10.0.0.1:8081", "http://10.0.0.1:8081"},
		{"node1", "http://node1:8080"},
		{"[::1]:8081", "http://[::1]:8081"},
		{"::1", "http://[::1]:8080"},
		{"https://node1:8443/", "https://node1:8443"},
		{"HTTP://node1", "http://node1:8080"},
		{"ftp://node1", ""}, {"node1:8080/state", ""}, {"http://a@node1:8080", ""}, {"", ""}, {":8080", ""}, {"node1:", ""}, {"a b:80", ""},
	} {
		got, err := dashboard.Address(tc.text)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q, %v, want %q", tc.text, got, err, tc.want)
		}
	}
}

func TestTable_ShowsMembersAndProblems(t *testing.T) {
	s := reference(t)
	other := reference(t)
	other.Node = dashboard.Node{ID: 2, Addr: "127.0.0.1:8082", Role: "follower", Ready: false, NotReady: "joining\nnow", UptimeSeconds: 4000}
	other.Epoch, other.Latency, other.Clock = nil, dashboard.Latency{}, dashboard.Clock{OffsetFromMedianSeconds: 1.25, OK: false}
	r := &dashboard.Report{Leader: s.Leader, Term: 3, Problems: []string{"node 3 does not answer: refused"}, Views: []dashboard.View{
		{NodeID: 1, Addr: "http://127.0.0.1:8081", State: s}, {NodeID: 2, Addr: "http://127.0.0.1:8082", State: other}, {NodeID: 3, Error: "refused"}, {Addr: "http://10.0.0.9:1"},
	}}
	var got strings.Builder
	if err := dashboard.WriteTable(&got, r); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

func TestSurvey_TellsNodesOfTwoClustersWithOneIDApart(t *testing.T) {
	a, b := newCluster(t, 1, time.Second).nodes[0], newCluster(t, 1, time.Second).nodes[0]
	a.change(func(s *dashboard.State) { s.ClusterID = "00c0ffee00c0ffee" })
	b.change(func(s *dashboard.State) { s.ClusterID = "00000000deadbeef" })
	r := ask(t, survey(t, 5*time.Second), a.addr, b.addr, strings.Replace(a.addr, "127.0.0.1", "localhost", 1))
	if len(r.Views) != 2 || r.Err() == nil || !strings.Contains(r.Err().Error(), "different clusters: 00000000deadbeef, 00c0ffee00c0ffee") {
		t.Errorf("%+v, %v", r.Views, r.Err())
	}
}
