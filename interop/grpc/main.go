// Command grpc demands of a cluster, through grpc-go, what interop/run.sh demands through the gRPC of every language: timestamps
// that ascend, also over a stream that many callers share, IDs that are distinct, and errors with the leader in their details. Its
// arguments are the addresses of the nodes, the leader first. It prints what it saw, or fails. The tests beside it go further.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: grpc LEADER FOLLOWER ...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var conns []*grpc.ClientConn
	for _, addr := range os.Args[1:] {
		c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			log.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, check := range []func(context.Context, []*grpc.ClientConn) error{unary, streamed, ids, refused} {
		if err := check(ctx, conns); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("grpc-go", grpc.Version+":", "1,100 timestamps, 2,000 IDs, errors")
}

var last []byte

// ascending demands a timestamp larger than all before.
func ascending(a *isotonev1.TimestampsGetResponse) error {
	if bytes.Compare(a.GetWide(), last) <= 0 || len(a.GetWide()) != 16 {
		return fmt.Errorf("%x after %x", a.GetWide(), last)
	}
	last = a.GetWide()
	return nil
}

func unary(ctx context.Context, conns []*grpc.ClientConn) error {
	for i := range 100 {
		a, err := isotonev1.NewTimestampsClient(conns[0]).Get(ctx, &isotonev1.TimestampsGetRequest{Count: proto.Uint64(uint64(i + 1))})
		if err != nil {
			return err
		}
		if err := ascending(a); err != nil {
			return err
		}
	}
	h, err := healthv1.NewHealthClient(conns[0]).Check(ctx, &healthv1.HealthCheckRequest{})
	if err == nil && h.Status != healthv1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("health: %v", h)
	}
	return err
}

func streamed(ctx context.Context, conns []*grpc.ClientConn) error {
	st, err := isotonev1.NewTimestampsClient(conns[0]).Stream(ctx)
	if err != nil {
		return err
	}
	for i := range 1000 {
		if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: uint64(i)}); err != nil {
			return err
		}
	}
	_ = st.CloseSend()
	for i := range 1000 {
		a, err := st.Recv()
		if err != nil {
			return err
		}
		if a.Id != uint64(i) {
			return fmt.Errorf("answer %d is that of request %d", i, a.Id)
		}
		if err := ascending(a.GetGot()); err != nil {
			return err
		}
	}
	if _, err = st.Recv(); err == io.EOF {
		err = nil
	}
	return err
}

func ids(ctx context.Context, conns []*grpc.ClientConn) error {
	seen := map[int64]bool{}
	for _, c := range conns[:2] {
		a, err := isotonev1.NewIdsClient(c).Get(ctx, &isotonev1.IdsGetRequest{Count: proto.Uint64(1000)})
		if err != nil {
			return err
		}
		for _, id := range a.Ids {
			seen[id] = true
		}
	}
	if len(seen) != 2000 {
		return fmt.Errorf("%d distinct IDs, want 2000", len(seen))
	}
	return nil
}

func refused(ctx context.Context, conns []*grpc.ClientConn) error {
	_, err := isotonev1.NewTimestampsClient(conns[0]).Get(ctx, &isotonev1.TimestampsGetRequest{Count: proto.Uint64(0)})
	if status.Code(err) != codes.InvalidArgument {
		return fmt.Errorf("a count of 0: %v", err)
	}
	_, err = isotonev1.NewTimestampsClient(conns[1]).Get(ctx, &isotonev1.TimestampsGetRequest{})
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Reason == "not_leader" && info.Metadata["leader"] == conns[0].CanonicalTarget()[len("passthrough:///"):] {
			return nil
		}
	}
	return fmt.Errorf("a follower does not name the leader: %v, %v", err, status.Convert(err).Details())
}
