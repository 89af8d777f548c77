package survey_test

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

	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// survey returns a survey with its own client, whose connections end with the test.
func surveyOf(t *testing.T, timeout time.Duration) survey.Survey {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return survey.Survey{Client: &http.Client{Transport: transport}, Timeout: timeout}
}

func ask(t *testing.T, y survey.Survey, addrs ...string) *survey.Report {
	t.Helper()
	r, err := y.Ask(t.Context(), addrs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSurvey_FindsEveryMemberFromAnyOfThem(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	for _, node := range c.Nodes {
		r := ask(t, surveyOf(t, 5*time.Second), node.Addr)
		if r.Err() != nil || r.Leader == nil || r.Leader.NodeID != 1 || r.Term != 7 || len(r.Views) != 3 {
			t.Fatalf("from node %d: %+v", node.ID, r)
		}
		for i, v := range r.Views {
			if v.NodeID != uint64(i+1) || v.State == nil || v.State.Node.ID != v.NodeID || v.State.History != nil {
				t.Errorf("view %d: %+v", i, v)
			}
		}
	}
	// Several addresses, one of them twice, are still one cluster.
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[2].Addr, "http://"+c.Nodes[0].Addr+"/", c.Nodes[0].Addr)
	if len(r.Views) != 3 || r.Err() != nil {
		t.Errorf("%+v", r)
	}
}

func TestSurvey_NamesMembersThatDoNotAnswer(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	c.Nodes[0].Kill()
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[1].Addr, c.Nodes[0].Addr)
	if len(r.Views) != 3 || r.Views[0].NodeID != 1 || r.Views[0].State != nil || r.Leader != nil {
		t.Fatalf("%+v", r)
	}
	// A node of this machine that is named in another way is still the same.
	if r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[1].Addr, strings.Replace(c.Nodes[0].Addr, "127.0.0.1", "localhost", 1)); len(r.Views) != 3 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"no leader", "node 1 does not answer", "refused", "node 2 is not ready: no leader is known"} {
		if !strings.Contains(r.Err().Error(), want) {
			t.Errorf("%q is missing in: %v", want, r.Err())
		}
	}
	c.Elect(2, 300*time.Millisecond)
	r = ask(t, surveyOf(t, 5*time.Second), c.Nodes[2].Addr)
	if r.Leader == nil || r.Leader.NodeID != 2 || len(r.Problems) != 1 {
		t.Errorf("after the election: %+v", r)
	}
	c.Nodes[1].Kill()
	c.Nodes[2].Kill()
	r = ask(t, surveyOf(t, 5*time.Second), c.Nodes[2].Addr)
	if len(r.Views) != 1 || r.Views[0].NodeID != 0 || !strings.Contains(r.Err().Error(), "the node at http://"+c.Nodes[2].Addr) {
		t.Errorf("with all members down: %+v", r)
	}
}

// TestSurvey_BelievesTheHighestTerm: a leader that was cut off still claims to lead.
func TestSurvey_BelievesTheHighestTerm(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	c.Elect(3, time.Second)
	c.Nodes[0].Change(func(s *survey.State) {
		s.Term, s.Leader, s.Node.Role = 7, &survey.Leader{NodeID: 1, Addr: s.Node.Addr}, "leader"
	})
	if r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr); r.Leader == nil || r.Leader.NodeID != 3 || r.Term != 8 {
		t.Errorf("leader %+v in term %d", r.Leader, r.Term)
	}
}

func TestSurvey_NoticesAnotherCluster(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	for i, n := range c.Nodes {
		n.Change(func(s *survey.State) { s.ClusterID = []string{"", "00c0ffee00c0ffee", "00000000deadbeef"}[i] })
	}
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "different clusters: 00000000deadbeef, 00c0ffee00c0ffee") {
		t.Errorf("%v", r.Err())
	}
}

// TestSurvey_WarnsOfClocksThatAreNotBelieved: they are not a problem of the cluster, which
// uses the other clocks.
func TestSurvey_WarnsOfClocksThatAreNotBelieved(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	for _, n := range c.Nodes {
		n.Change(func(s *survey.State) {
			s.Clock.OffsetFromQuorumSeconds, s.Clock.LimitSeconds = new(0.0), 0.5
			if n.ID == 2 {
				s.Clock.OffsetFromQuorumSeconds, s.Clock.Exceeded = new(3600.0), true
			}
			if n.ID == 1 {
				s.Members[2].ClockOffsetSeconds = new(-0.75)
			}
		})
	}
	wrong2 := "node 2's clock is 1 h ahead of the quorum's: timestamps follow the quorum's clock; correct the node's"
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
	if err := r.Err(); err != nil || !slices.Equal(r.Warnings, []string{wrong2}) {
		t.Errorf("%v, %q", err, r.Warnings)
	}
	c.Nodes[2].Kill() // then the others report its clock
	r = ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
	wrong3 := "node 3's clock is 750 ms behind the quorum's: timestamps follow the quorum's clock; correct the node's"
	if !slices.Equal(r.Warnings, []string{wrong2, wrong3}) {
		t.Errorf("a member that does not answer: %q", r.Warnings)
	}
}

func TestSurvey_TellsAClusterThatIsBeingFormed(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	c.Elect(0, 0)
	forming := func(s *survey.State) {
		s.Node.Forming, s.Node.Role, s.Node.NotReady = true, "follower", "it needs node 3"
		s.Members[1].Addr, s.Members[2].Addr, s.Members[2].Connected = "", "", false
	}
	c.Nodes[0].Change(forming)
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
	if !slices.Equal(r.Problems, []string{"node 1 is not ready: it needs node 3"}) {
		t.Errorf("%q", r.Problems)
	}
	var table strings.Builder
	if err := survey.WriteTable(&table, r); err != nil {
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
	r := ask(t, surveyOf(t, 150*time.Millisecond), listener.Addr().String())
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "no answer within 150ms") {
		t.Errorf("%v", r.Err())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := surveyOf(t, time.Hour).Ask(ctx, []string{listener.Addr().String()}); err != nil || r.Err() == nil {
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
		r := ask(t, surveyOf(t, 5*time.Second), server.URL)
		if r.Err() == nil || !strings.Contains(r.Err().Error(), tc.want) {
			t.Errorf("%d %q: %v, want %q", tc.status, tc.body, r.Err(), tc.want)
		}
		server.Close()
	}
}

func TestSurvey_NoticesAnotherNodeAtAMembersAddress(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	c.Nodes[0].Change(func(s *survey.State) { s.Members[1].Addr = c.Nodes[2].Addr })
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
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
		got, err := survey.Address(tc.text)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q, %v, want %q", tc.text, got, err, tc.want)
		}
	}
}

func TestTable_ShowsMembersAndProblems(t *testing.T) {
	s := fakecluster.Read(t, "testdata/state.json")
	other := fakecluster.Read(t, "testdata/state.json")
	other.Node = survey.Node{ID: 2, Addr: "127.0.0.1:8082", Role: "follower", Ready: false, NotReady: "joining\nnow", UptimeSeconds: 4000}
	other.Epoch, other.Latency, other.Clock = nil, survey.Latency{}, survey.Clock{OffsetFromMedianSeconds: 1.25, OK: false}
	r := &survey.Report{Leader: s.Leader, Term: 3, Problems: []string{"node 3 does not answer: refused"}, Views: []survey.View{
		{NodeID: 1, Addr: "http://127.0.0.1:8081", State: s}, {NodeID: 2, Addr: "http://127.0.0.1:8082", State: other}, {NodeID: 3, Error: "refused"}, {Addr: "http://10.0.0.9:1"},
	}}
	var got strings.Builder
	if err := survey.WriteTable(&got, r); err != nil {
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
	a, b := fakecluster.New(t, 1, time.Second, nil).Nodes[0], fakecluster.New(t, 1, time.Second, nil).Nodes[0]
	a.Change(func(s *survey.State) { s.ClusterID = "00c0ffee00c0ffee" })
	b.Change(func(s *survey.State) { s.ClusterID = "00000000deadbeef" })
	r := ask(t, surveyOf(t, 5*time.Second), a.Addr, b.Addr, strings.Replace(a.Addr, "127.0.0.1", "localhost", 1))
	want := "http://" + b.Addr + " is no member of cluster 00c0ffee00c0ffee: node 1 of cluster 00000000deadbeef answers there"
	if len(r.Views) != 1 || r.Err() == nil || r.Err().Error() != want {
		t.Errorf("%+v, %v", r.Views, r.Err())
	}
}

// TestSurvey_NamesTwoNodesWithOneID, of which no cluster can be formed.
func TestSurvey_NamesTwoNodesWithOneID(t *testing.T) {
	a, b := fakecluster.New(t, 1, time.Second, nil).Nodes[0], fakecluster.New(t, 1, time.Second, nil).Nodes[0]
	for _, n := range []*fakecluster.Node{a, b} {
		n.Change(func(s *survey.State) { s.ClusterID, s.Node.Forming = "", true })
	}
	r := ask(t, surveyOf(t, 5*time.Second), a.Addr, b.Addr)
	if len(r.Views) != 2 || r.Err() == nil || !strings.Contains(r.Err().Error(), "as two processes: each node needs a NODE_ID of its own") {
		t.Errorf("%+v, %v", r.Views, r.Err())
	}
}

// TestSurvey_CountsNoStranger: an address that is that of no member is named, and is no member that does not answer.
func TestSurvey_CountsNoStranger(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	for _, n := range c.Nodes {
		n.Change(func(s *survey.State) { s.ClusterID = "00c0ffee00c0ffee" })
	}
	foreign := fakecluster.New(t, 1, time.Second, nil).Nodes[0]
	foreign.Change(func(s *survey.State) { s.ClusterID, s.Term = "00000000deadbeef", 99 })
	gone := fakecluster.New(t, 1, time.Second, nil).Nodes[0]
	gone.Kill()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	c.Nodes[2].Kill()
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr, foreign.Addr, gone.Addr, other.Listener.Addr().String())
	if r.Term == 99 || r.Leader == nil || r.Leader.Addr != c.Nodes[0].Addr {
		t.Errorf("leader %+v of term %d is that of the other cluster", r.Leader, r.Term)
	}
	for _, want := range []string{
		"http://" + foreign.Addr + " is no member of cluster 00c0ffee00c0ffee: node 1 of cluster 00000000deadbeef answers there",
		"http://" + gone.Addr + ": no member of this cluster has this client address, and nothing answers there: ",
		"node 3 does not answer: ", "http://" + other.Listener.Addr().String() + " answers, but is not a node",
	} {
		if !strings.Contains(r.Err().Error(), want) {
			t.Errorf("%q is missing in %v", want, r.Err())
		}
	}
	var table strings.Builder
	if err := survey.WriteTable(&table, r); err != nil || !strings.Contains(table.String(), "2 of 3 members answer; cluster 00c0ffee00c0ffee") || len(r.Problems) != 4 {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// Time that is behind is said in a word, in the table and in the text for curl.
func TestLead_BehindIsAWord(t *testing.T) {
	s := &survey.State{Node: survey.Node{ID: 1, Role: "leader", Ready: true}, Epoch: &survey.Mark{LeadSeconds: -0.021}}
	var table, text strings.Builder
	if err := survey.WriteTable(&table, &survey.Report{Views: []survey.View{{NodeID: 1, Addr: "http://a:1", State: s}}}); err != nil || !strings.Contains(table.String(), "behind 21 ms") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if err := survey.WriteSummary(&text, s); err != nil || !strings.Contains(text.String(), "21 ms behind this node's clock") {
		t.Errorf("%v\n%s", err, text.String())
	}
}
