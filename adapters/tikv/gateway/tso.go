package gateway

import (
	"context"
	"crypto/x509"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pingcap/kvproto/pkg/pdpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/pd"
)

// queueMax bounds the requests of one stream that were received and not yet taken into a batch. When
// it is full, the stream is not read, and HTTP/2 has the client wait.
const queueMax = 1024

// globalLocation is the dc_location of timestamps that are in order everywhere. Others are "local
// TSO", an order for each data center, which PD has deprecated.
const globalLocation = "global"

// request is what was received on a stream.
type request struct {
	count uint64
	// end, if not nil, is why nothing follows. Then there is no count.
	end error
}

// tso serves one stream: a goroutine receives requests, and this one answers them in order. All that
// wait share a request to the cluster, and those of other streams join it within the Source.
func (s *Server) tso(stream grpc.ServerStream) (err error) {
	s.metrics.streams.Inc()
	defer func() { s.metrics.streamEnded(err) }()
	queue := make(chan request, queueMax)
	s.readers.Go(func() { s.receive(stream, queue) }) // ends when this function has returned
	ctx := stream.Context()
	var b pd.Batch
	next := s.wait(ctx, queue)
	for next.end == nil {
		b.Reset()
		next = collect(&b, next, queue)
		r, err := s.timestamps(ctx, s.cfg.Timeout, b.Ask())
		if err != nil {
			return refusal(err)
		}
		if err := b.Place(r, func(count uint64, last isotone.Timestamp64) error { return s.send(stream, count, last) }); err != nil {
			return err
		}
		if next == (request{}) {
			next = s.wait(ctx, queue)
		}
	}
	if next.end == io.EOF {
		return nil
	}
	return next.end
}

// collect adds r, which has a count, and what waits in queue. It returns the request that has no place
// in the batch or ends the stream; if there is none, the zero request.
func collect(b *pd.Batch, r request, queue <-chan request) request {
	for r.end == nil && b.Add(r.count) {
		select {
		case r = <-queue:
		default:
			return request{}
		}
	}
	return r
}

// wait returns the next request of the stream. When the server stops, streams end as soon as their
// queue is empty.
func (s *Server) wait(ctx context.Context, queue <-chan request) request {
	select {
	case r := <-queue:
		return r
	default:
	}
	select {
	case r := <-queue:
		return r
	case <-s.stopping:
		return request{end: io.EOF}
	case <-ctx.Done():
		return request{end: status.FromContextError(ctx.Err()).Err()}
	}
}

// receive puts the requests of a stream into queue until the stream ends.
func (s *Server) receive(stream grpc.ServerStream, queue chan<- request) {
	client := chainsOf(stream.Context())
	for {
		var m pdpb.TsoRequest
		err := stream.RecvMsg(&m)
		if err == nil {
			err = s.admit(client)
		}
		if err == nil {
			err = s.check(&m)
		}
		select {
		case queue <- request{count: uint64(m.GetCount()), end: err}:
		case <-stream.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// chainsOf returns the chains with which the certificate of a client was verified, nil if it has none.
func chainsOf(ctx context.Context) [][]*x509.Certificate {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return info.State.VerifiedChains
		}
	}
	return nil
}

// admit returns why a client whose certificate has these chains gets no timestamps, though its connection is open, or nil.
func (s *Server) admit(client [][]*x509.Certificate) error {
	if len(client) > 0 && s.cfg.Refused != nil && s.cfg.Refused(client) {
		return status.Error(codes.Unauthenticated, "the certificate of the client has ended, or was revoked")
	}
	return nil
}

// check returns the status of a request that is refused. Words and codes are those of PD, where it
// refuses the same.
func (s *Server) check(m *pdpb.TsoRequest) error {
	own := uint64(s.cfg.Source.Cluster())
	switch {
	case own == 0:
		return status.Error(codes.Unavailable, errUnknownCluster.Error())
	case m.GetHeader().GetClusterId() != own:
		return status.Errorf(codes.FailedPrecondition, "mismatch cluster id, need %d but got %d", own, m.GetHeader().GetClusterId())
	case m.GetDcLocation() != "" && m.GetDcLocation() != globalLocation:
		return status.Errorf(codes.InvalidArgument, "dc-location %.80q: Isotone has global timestamps only", m.GetDcLocation())
	case m.GetCount() < 1 || m.GetCount() > CountMax:
		return status.Errorf(codes.InvalidArgument, "tso count %d: want 1 to %d", m.GetCount(), uint64(CountMax))
	}
	return nil
}

func (s *Server) send(stream grpc.ServerStream, count uint64, last isotone.Timestamp64) error {
	err := stream.SendMsg(&pdpb.TsoResponse{
		Header:    s.header(),
		Count:     uint32(count),
		Timestamp: &pdpb.Timestamp{Physical: int64(last.Milli()), Logical: int64(last.Counter())},
	})
	if err == nil {
		s.metrics.answered(count)
	}
	return err
}
