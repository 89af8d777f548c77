//go:build linux && !newest

package node_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/keyspacepb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	pd "github.com/tikv/pd/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/authority"
	isotonepd "github.com/isotone/isotone/internal/front/pd"
)

// openTso opens a call of Tso.
func openTso(t *testing.T, conn *grpc.ClientConn) pdpb.PD_TsoClient {
	t.Helper()
	stream, err := pdpb.NewPDClient(conn).Tso(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// clusterOf returns the ID of the cluster of nodes.
func clusterOf(t *testing.T, c *nodes) uint64 {
	t.Helper()
	own, err := client.New(testContext(t), c.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	return uint64(own.Cluster())
}

func TestPDPort_RefusesWhatPDRefuses(t *testing.T) {
	c := start(t, 0, nil)
	leader, id := dial(t, c.pd[c.WaitLeader().ID]), clusterOf(t, c)
	good := &pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: id}, Count: 5, DcLocation: "global"}
	for name, r := range map[string]struct {
		request *pdpb.TsoRequest
		code    codes.Code
		want    string
	}{
		"another cluster": {&pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: 7}, Count: 1}, codes.FailedPrecondition, "mismatch cluster id"},
		"no header":       {&pdpb.TsoRequest{Count: 1}, codes.FailedPrecondition, "but got 0"},
		"no count":        {&pdpb.TsoRequest{Header: good.Header}, codes.InvalidArgument, "want 1 to 131072"},
		"a large count":   {&pdpb.TsoRequest{Header: good.Header, Count: isotonepd.CountMax + 1}, codes.InvalidArgument, "want 1 to 131072"},
		"a local order":   {&pdpb.TsoRequest{Header: good.Header, Count: 1, DcLocation: "dc-1"}, codes.InvalidArgument, "global timestamps only"},
		"a large message": {&pdpb.TsoRequest{Header: good.Header, Count: 1, DcLocation: strings.Repeat("x", 1<<16)}, codes.InvalidArgument, "want at most"},
	} {
		stream := openTso(t, leader)
		for _, m := range []*pdpb.TsoRequest{good, r.request} { // what comes before the bad request is answered
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		got, err := stream.Recv()
		if err != nil || got.GetCount() != 5 || got.GetHeader().GetClusterId() != id || got.GetTimestamp().GetLogical() < 4 {
			t.Fatalf("%s: the good request got %v, %v", name, got, err)
		}
		if _, err = stream.Recv(); status.Code(err) != r.code || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: got %v, want %v with %q", name, err, r.code, r.want)
		}
	}
	stream := openTso(t, dial(t, c.follower()))
	if err := stream.Send(good); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "is not leader") {
		t.Errorf("a follower: %v", err)
	}
}

func TestPDPort_SaysWhatItDoesNotHave(t *testing.T) {
	c := start(t, 1, nil)
	conn, ctx := dial(t, c.pd[1]), testContext(t)
	_, err := pdpb.NewPDClient(conn).GetRegion(ctx, &pdpb.GetRegionRequest{})
	_, err2 := keyspacepb.NewKeyspaceClient(conn).LoadKeyspace(ctx, &keyspacepb.LoadKeyspaceRequest{})
	for method, err := range map[string]error{"/pdpb.PD/GetRegion": err, "/keyspacepb.Keyspace/LoadKeyspace": err2} {
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), method+": this is Isotone") {
			t.Errorf("%s: %v", method, err)
		}
	}
	got, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	info, err := pdpb.NewPDClient(conn).GetClusterInfo(ctx, &pdpb.GetClusterInfoRequest{})
	if modes := info.GetServiceModes(); err != nil || len(modes) != 1 || modes[0] != pdpb.ServiceMode_PD_SVC_MODE || info.GetHeader().GetClusterId() != clusterOf(t, c) {
		t.Errorf("cluster info: %v, %v", info, err)
	}
	stream := openTso(t, conn)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream without a request: %v, want its end", err)
	}
}

// Where those without a certificate have no rights, only the right certificate gets timestamps.
func TestPDPort_CertificatesDecide(t *testing.T) {
	dir := &authority.Dir{Path: t.TempDir()}
	made := func(m authority.Made, err error) authority.Made {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ca := made(dir.Authority("test", time.Hour, false))
	own := made(dir.Sign(authority.Node("test", 1, []string{"127.0.0.1"}), time.Hour))
	users := filepath.Join(t.TempDir(), "users.json")
	if err := os.WriteFile(users, []byte(`{"users": {"tidb": {"roles": ["timestamps"]}, "ids": {"roles": ["ids"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, 1, map[string]string{
		"TLS_CERT": own.Cert, "TLS_KEY": own.Key, "TLS_CLIENT_CA": ca.Cert, "ACL_FILE": users, "ANONYMOUS": "live",
	})
	security := func(name string) pd.SecurityOption {
		m := made(dir.Sign(authority.Client("test", name), time.Hour))
		return pd.SecurityOption{CAPath: ca.Cert, CertPath: m.Cert, KeyPath: m.Key}
	}
	p := newPDClient(t, security("tidb"), "https://"+c.pd[1])
	var o order
	for range 10 {
		if err := o.get(t, askPD(testContext(t), p)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(name string, option pd.SecurityOption, url string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testWait)
		defer cancel()
		if other, err := pd.NewClientWithContext(ctx, []string{url}, option, pd.WithMaxErrorRetry(1)); err == nil {
			other.Close()
			t.Errorf("%s: it is served", name)
		}
	}
	refused("another role", security("ids"), "https://"+c.pd[1])
	refused("no certificate", pd.SecurityOption{}, "http://"+c.pd[1])
}
