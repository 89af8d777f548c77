package gateway

import (
	"context"
	"errors"
	"hash/fnv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pingcap/kvproto/pkg/pdpb"

	"github.com/isotone/isotone"
)

// probeTimeout bounds the request by which GetMembers finds out whether the cluster answers: less than
// the second that the Go client of PD waits for the members. A failover of Isotone is shorter.
const probeTimeout = 800 * time.Millisecond

// errUnknownCluster: clients must not learn that the cluster ID is 0, which they would keep.
var errUnknownCluster = isotone.Errorf(isotone.CodeNoLeader, "no node of the Isotone cluster was reached yet, so its ID is not known")

// service describes the methods that the gateway has. The generated description would have all of
// PD's, each with an answer that does not say why.
func (s *Server) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "pdpb.PD",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{unary("GetMembers", s.getMembers), unary("GetClusterInfo", s.getClusterInfo)},
		Streams: []grpc.StreamDesc{{
			StreamName: "Tso", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return s.tso(stream) },
		}},
		Metadata: "pdpb.proto",
	}
}

// unary describes a method with one request and one answer.
func unary[Q, A any](name string, answer func(context.Context, *Q) *A) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		q := new(Q)
		if err := decode(q); err != nil {
			return nil, err
		}
		return answer(ctx, q), nil
	}}
}

func refuseMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented,
		"%s: this is a gateway to Isotone, which has timestamps only: of pdpb.PD it serves GetMembers, GetClusterInfo and Tso", method)
}

// getMembers names this gateway as the leader, provided that the cluster answers: after an error,
// clients ask the next member. As in PD, the caller need not know the cluster ID, which it learns here.
func (s *Server) getMembers(ctx context.Context, _ *pdpb.GetMembersRequest) *pdpb.GetMembersResponse {
	if err := s.Ready(ctx); err != nil {
		return &pdpb.GetMembersResponse{Header: s.failed(err)}
	}
	if s.cfg.Source.Cluster() == 0 {
		return &pdpb.GetMembersResponse{Header: s.failed(errUnknownCluster)}
	}
	return &pdpb.GetMembersResponse{Header: s.header(), Members: s.members, Leader: s.members[0], EtcdLeader: s.members[0]}
}

// getClusterInfo says that timestamps are served here, and not by a service of their own.
func (s *Server) getClusterInfo(context.Context, *pdpb.GetClusterInfoRequest) *pdpb.GetClusterInfoResponse {
	if s.cfg.Source.Cluster() == 0 {
		return &pdpb.GetClusterInfoResponse{Header: s.failed(errUnknownCluster)}
	}
	return &pdpb.GetClusterInfoResponse{Header: s.header(), ServiceModes: []pdpb.ServiceMode{pdpb.ServiceMode_PD_SVC_MODE}}
}

// header has the ID of the Isotone cluster as that of the PD cluster: both have 64 bits.
func (s *Server) header() *pdpb.ResponseHeader {
	return &pdpb.ResponseHeader{ClusterId: uint64(s.cfg.Source.Cluster())}
}

func (s *Server) failed(err error) *pdpb.ResponseHeader {
	h := s.header()
	h.Error = &pdpb.Error{Type: pdpb.ErrorType_UNKNOWN, Message: err.Error()}
	return h
}

// newMember describes a gateway. Its ID is a hash of its URL, so that all gateways say the same.
func newMember(url string) *pdpb.Member {
	h := fnv.New64a()
	_, _ = h.Write([]byte(url))
	_, addr, _ := strings.Cut(url, "://")
	return &pdpb.Member{Name: "isotone-pd-" + addr, MemberId: h.Sum64() | 1, ClientUrls: []string{url}}
}

// refusal returns the status of a stream that ends because the cluster does not answer. The Go client
// of PD fails the calls that wait, asks the members who leads, and opens a new stream; client-go makes
// its calls again.
func refusal(err error) error {
	code := codes.Unavailable
	var told *isotone.Error
	switch {
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.As(err, &told):
		code = codeOf(told.Code)
	}
	return status.Error(code, err.Error())
}

// codeOf returns the gRPC code for a failure: Unavailable, unless a repetition cannot help.
func codeOf(c isotone.Code) codes.Code {
	switch c {
	case isotone.CodeInvalidArgument:
		return codes.InvalidArgument
	case isotone.CodeUnauthorized, isotone.CodeForbidden:
		return codes.PermissionDenied // it is the gateway that was refused, not its client
	case isotone.CodeWrongCluster, isotone.CodeRegressed:
		return codes.FailedPrecondition
	case isotone.CodeInternal:
		return codes.Internal
	}
	return codes.Unavailable
}
