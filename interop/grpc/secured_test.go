package main

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

// TestNode_AllMethods: a node of its own, with intervals.
func TestNode_AllMethods(t *testing.T) {
	n := testnode.Guarded(t, "", func(s *config.Settings) { s.Interval = 100_000_000 })
	conn, ctx := dial(t, n.Client), soon(t)
	timestamps, ids, intervals := isotonev1.NewTimestampsClient(conn), isotonev1.NewIdsClient(conn), isotonev1.NewIntervalClient(conn)
	await.Until(t, "IDs are made, and the clock is read", func() bool {
		_, err := ids.Get(ctx, &isotonev1.IdsGetRequest{})
		_, err2 := intervals.Get(ctx, &isotonev1.IntervalGetRequest{})
		return err == nil && err2 == nil
	})
	first, err := timestamps.Get(ctx, get(10))
	if err != nil {
		t.Fatal(err)
	}
	second, err := timestamps.Get(ctx, &isotonev1.TimestampsGetRequest{
		Mode: isotonev1.ReadMode_READ_MODE_LEASE, Floor: &isotonev1.TimestampsGetRequest_WideFloor{WideFloor: first.GetWide()},
	})
	if err != nil || string(second.GetWide()) <= string(first.GetWide()) {
		t.Errorf("%x after %x, %v", second.GetWide(), first.GetWide(), err)
	}
	small, err := timestamps.Get(ctx, &isotonev1.TimestampsGetRequest{Count: proto.Uint64(1 << 18), Form: isotonev1.Form_FORM_U64})
	if err != nil || small.Count != 1<<18 {
		t.Fatalf("%v, %v", small, err)
	}
	next, err := timestamps.Get(ctx, &isotonev1.TimestampsGetRequest{
		Form: isotonev1.Form_FORM_U64, Floor: &isotonev1.TimestampsGetRequest_U64Floor{U64Floor: small.GetU64() + 1<<18 - 1},
	})
	if err != nil || next.GetU64() < small.GetU64()+1<<18 {
		t.Errorf("%v after %v, %v", next, small, err)
	}
	_, err = timestamps.Get(ctx, &isotonev1.TimestampsGetRequest{Floor: &isotonev1.TimestampsGetRequest_WideFloor{WideFloor: []byte(strings.Repeat("\x7f", 16))}})
	wants(t, err, codes.FailedPrecondition, "regressed")
	many, err := ids.Get(ctx, &isotonev1.IdsGetRequest{Count: proto.Uint64(65536)})
	if err != nil || len(many.Ids) != 65536 {
		t.Fatalf("%d, %v", len(many.GetIds()), err)
	}
	for i, id := range many.Ids[1:] {
		if id <= many.Ids[i] {
			t.Fatalf("%d after %d", id, many.Ids[i])
		}
	}
	reading, err := intervals.Get(ctx, &isotonev1.IntervalGetRequest{Nonce: 1<<64 - 1})
	if err != nil || reading.Nonce != 1<<64-1 || reading.Earliest > reading.Latest || reading.Latest > reading.Limit || reading.Cluster == 0 {
		t.Errorf("%v, %v", reading, err)
	}
	stamps, err := intervals.Stamp(ctx, &isotonev1.IntervalStampRequest{Count: proto.Uint64(5)})
	if err != nil || stamps.Count != 5 {
		t.Fatalf("%v, %v", stamps, err)
	}
	if _, err := intervals.Wait(ctx, &isotonev1.IntervalWaitRequest{Timestamp: stamps.First}); err != nil {
		t.Error(err)
	}
	_, err = intervals.Wait(ctx, &isotonev1.IntervalWaitRequest{})
	wants(t, err, codes.InvalidArgument, "invalid_argument")
	for _, service := range []string{"", "isotone.v1.Timestamps", "isotone.v1.Ids"} {
		if a, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service}); err != nil || a.Status != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, a, err)
		}
	}
}

// TestNode_EndsStreams: a node that ends answers what its streams have sent, and says goodbye.
func TestNode_EndsStreams(t *testing.T) {
	stop, so, _ := testnode.RunSockets(t, nil)
	c := isotonev1.NewTimestampsClient(dial(t, so.HTTP.Addr().String()))
	await.Until(t, "the node leads", func() bool {
		_, err := c.Get(soon(t), get(1))
		return err == nil
	})
	st, err := c.Stream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: 1}); err != nil {
		t.Fatal(err)
	}
	if a, err := st.Recv(); err != nil || a.GetGot() == nil {
		t.Fatalf("%v, %v", a, err)
	}
	go stop()
	_, err = st.Recv()
	wants(t, err, codes.Unavailable, "no_leader")
	stop()
}

// TestNode_KnowsItsClients by secrets and certificates.
func TestNode_KnowsItsClients(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("node")
	n := testnode.Guarded(t, rig.Users, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.File })
	ask := func(cfg *tls.Config, as string) (timestamps, ids, stream error) {
		options := []grpc.DialOption{}
		if cfg != nil {
			options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		}
		if as != "" {
			options = append(options, grpc.WithPerRPCCredentials(authorization(as)))
		}
		conn, ctx := dial(t, n.Client, options...), soon(t)
		_, timestamps = isotonev1.NewTimestampsClient(conn).Get(ctx, get(1))
		_, ids = isotonev1.NewIdsClient(conn).Get(ctx, &isotonev1.IdsGetRequest{})
		st, stream := isotonev1.NewTimestampsClient(conn).Stream(ctx)
		if stream == nil {
			_ = st.CloseSend()
			if _, stream = st.Recv(); stream == io.EOF {
				stream = nil
			}
		}
		return timestamps, ids, stream
	}
	const ok, denied, unknown = codes.OK, codes.PermissionDenied, codes.Unauthenticated
	for _, test := range []struct {
		name, as        string
		cfg             *tls.Config
		timestamps, ids codes.Code
	}{
		{"nobody", "", nil, unknown, unknown},
		{"a secret", rig.Bearer("web", rig.Secret), nil, ok, denied},
		{"another secret", rig.Basic("ids", rig.Secret), nil, denied, ok},
		{"a wrong secret", rig.Bearer("web", "wrong-wrong"), nil, unknown, unknown},
		{"a certificate", "", a.Client("web"), ok, denied},
		{"another certificate", "", a.Client("ids"), denied, ok},
		{"a certificate and a secret", rig.Bearer("ops", rig.Secret), a.Client("ids"), ok, ok},
		{"a stranger's certificate", "", a.Client("stranger"), unknown, unknown},
	} {
		timestamps, ids, stream := ask(test.cfg, test.as)
		if status.Code(timestamps) != test.timestamps || status.Code(ids) != test.ids || status.Code(stream) != test.timestamps {
			t.Errorf("%s: %v, %v, %v; want %v, %v", test.name, timestamps, ids, stream, test.timestamps, test.ids)
		}
		if timestamps != nil {
			reason := map[codes.Code]string{denied: "forbidden", unknown: "unauthorized"}[test.timestamps]
			wants(t, timestamps, test.timestamps, reason)
		}
	}
}

// TestNode_QuotasAndRevokedRights: quotas count for calls and for each request of a stream, which ends with the right to it.
func TestNode_QuotasAndRevokedRights(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {"few": {"roles": ["timestamps"], "secrets": ["HASH"], "limits": {"requests": 2}}}}`, nil)
	c, ctx := isotonev1.NewTimestampsClient(dial(t, n.Client, grpc.WithPerRPCCredentials(authorization(rig.Bearer("few", rig.Secret))))), soon(t)
	st, err := c.Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for range 5 {
		a, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if a.GetError() != nil {
			refused++
			if _, retry := wants(t, status.FromProto(a.GetError()).Err(), codes.ResourceExhausted, "quota_exceeded"); retry == nil {
				t.Error("there is no RetryInfo")
			}
		}
	}
	if refused < 2 {
		t.Errorf("%d of 5 are refused", refused)
	}
	await.Until(t, "a call is refused", func() bool {
		_, err = c.Get(ctx, get(1))
		return err != nil
	})
	wants(t, err, codes.ResourceExhausted, "quota_exceeded")
	n.Users.Write(`{"users": {"few": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	_, err = st.Recv()
	wants(t, err, codes.PermissionDenied, "forbidden")
}
