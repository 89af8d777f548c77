package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isotone/isotone/adapters/tikv/gateway"
)

// BenchmarkTso is one request after the other on a stream, with a source that answers at once: what the
// gateway and gRPC on both sides cost.
func BenchmarkTso(b *testing.B) {
	ln := listen(b)
	g, err := gateway.New(gateway.Config{Source: newSource(0), Members: []string{"http://" + ln.Addr().String()}})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	stream, err := pdpb.NewPDClient(conn).Tso(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := stream.Send(askFor(1)); err != nil {
			b.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	_ = conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
	if err := <-served; err != nil {
		b.Fatal(err)
	}
}
