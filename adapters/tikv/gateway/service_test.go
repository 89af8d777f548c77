package gateway_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pingcap/kvproto/pkg/keyspacepb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/gateway"
)

func TestGetMembers_NamesThisGatewayAsTheLeader(t *testing.T) {
	g := start(t, listen(t), gateway.Config{Source: newSource(0)}, "127.0.0.2:2379", "127.0.0.3:2379")
	got, err := dial(t, g.addr).GetMembers(testContext(t), &pdpb.GetMembersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetHeader().GetClusterId() != uint64(testCluster) || got.GetHeader().GetError() != nil {
		t.Fatalf("header %v", got.GetHeader())
	}
	ids := map[uint64]bool{}
	for i, want := range []string{"http://" + g.addr, "http://127.0.0.2:2379", "http://127.0.0.3:2379"} {
		m := got.GetMembers()[i]
		if len(m.GetClientUrls()) != 1 || m.GetClientUrls()[0] != want || m.GetMemberId() == 0 || ids[m.GetMemberId()] {
			t.Errorf("member %d is %v, want %s and an ID of its own", i, m, want)
		}
		ids[m.GetMemberId()] = true
	}
	if got.GetLeader().GetMemberId() != got.GetMembers()[0].GetMemberId() || len(got.GetLeader().GetClientUrls()) != 1 {
		t.Errorf("the leader is %v", got.GetLeader())
	}
}

// A client then asks the next member.
func TestGetMembers_FailsWhileTheClusterDoesNotAnswer(t *testing.T) {
	s := newSource(0)
	s.err = isotone.Errorf(isotone.CodeNoLeader, "an election is under way")
	g := startOne(t, s)
	members := func() *pdpb.GetMembersResponse {
		got, err := dial(t, g.addr).GetMembers(testContext(t), &pdpb.GetMembersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := members(); !strings.Contains(got.GetHeader().GetError().GetMessage(), "an election is under way") || got.GetLeader() != nil {
		t.Fatalf("without a leader: %v", got)
	}
	s.set(func(s *source) { s.err, s.cluster = nil, 0 })
	if got := members(); !strings.Contains(got.GetHeader().GetError().GetMessage(), "its ID is not known") {
		t.Fatalf("without a cluster ID: %v", got)
	}
	s.set(func(s *source) { s.cluster = testCluster })
	if got := members(); got.GetHeader().GetError() != nil || got.GetLeader() == nil {
		t.Fatalf("with a leader: %v", got)
	}
}

func TestGetClusterInfo_SaysThatTimestampsAreServedHere(t *testing.T) {
	s := newSource(0)
	client := dial(t, startOne(t, s).addr)
	got, err := client.GetClusterInfo(testContext(t), &pdpb.GetClusterInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if modes := got.GetServiceModes(); len(modes) != 1 || modes[0] != pdpb.ServiceMode_PD_SVC_MODE || got.GetHeader().GetClusterId() != uint64(testCluster) {
		t.Fatalf("got %v", got)
	}
	s.set(func(s *source) { s.cluster = 0 })
	if got, err = client.GetClusterInfo(testContext(t), &pdpb.GetClusterInfoRequest{}); err != nil || got.GetHeader().GetError() == nil {
		t.Fatalf("without a cluster ID: %v, %v", got, err)
	}
}

func TestTso_RefusesWhileTheClusterIsNotKnown(t *testing.T) {
	s := newSource(0)
	s.cluster = 0
	stream := openStream(t, startOne(t, s).addr)
	ask(t, stream, 1)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
}

func TestService_SaysWhatItDoesNotHave(t *testing.T) {
	conn := dialConn(t, startOne(t, newSource(0)).addr)
	ctx := testContext(t)
	_, err := pdpb.NewPDClient(conn).GetRegion(ctx, &pdpb.GetRegionRequest{})
	_, err2 := keyspacepb.NewKeyspaceClient(conn).LoadKeyspace(ctx, &keyspacepb.LoadKeyspaceRequest{})
	for method, err := range map[string]error{"/pdpb.PD/GetRegion": err, "/keyspacepb.Keyspace/LoadKeyspace": err2} {
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), method+": this is a gateway to Isotone") {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// Clients of PD ask for the health of members every second.
func TestService_IsHealthy(t *testing.T) {
	conn := dialConn(t, startOne(t, newSource(0)).addr)
	got, err := grpc_health_v1.NewHealthClient(conn).Check(testContext(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestNew_ListsEverythingThatIsWrong(t *testing.T) {
	_, err := gateway.New(gateway.Config{
		Members: []string{"127.0.0.1:2379", "https://a:1", "http://a:1/", "http://b:1", "http://b:1"}, Timeout: -1, ConnectionsMax: -1,
	})
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"want a Source", "member 127.0.0.1:2379: want http://HOST:PORT", "member https://a:1:", "member http://a:1/:",
		"http://b:1 is a member twice", "want a Timeout", "want ConnectionsMax",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := gateway.New(gateway.Config{Source: newSource(0)}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("without members: %v", err)
	}
}
