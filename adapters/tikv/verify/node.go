package main

import (
	"context"
	"sync"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

// backoffMax bounds the pause before a node that is down is dialed again: tests end such times.
const backoffMax = time.Second

// node is a connection to one server. A call has a stream of it alone.
type node struct {
	conn   *grpc.ClientConn
	client pdpb.PDClient

	mu   sync.Mutex
	idle []*stream // never more than there are calls at a time
}

type stream struct {
	pdpb.PD_TsoClient
	header *pdpb.RequestHeader
	cancel context.CancelFunc
}

func newNode(address string) (*node, error) {
	pause := backoff.DefaultConfig
	pause.MaxDelay = backoffMax
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause, MinConnectTimeout: backoffMax}))
	if err != nil {
		return nil, err
	}
	return &node{conn: conn, client: pdpb.NewPDClient(conn)}, nil
}

// ask makes one request. After an error the stream is not used again.
func (n *node) ask(count uint32, deadline time.Time) (answer *pdpb.TsoResponse, err error) {
	s, err := n.take(deadline)
	if err != nil {
		return nil, err
	}
	timer := time.AfterFunc(time.Until(deadline), s.cancel)
	if err = s.Send(&pdpb.TsoRequest{Header: s.header, Count: count}); err == nil {
		answer, err = s.Recv()
	} else {
		_, err = s.Recv() // which says why
	}
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		s.cancel()
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.idle = append(n.idle, s)
	return answer, nil
}

// take returns a stream that is idle, or begins one.
func (n *node) take(deadline time.Time) (*stream, error) {
	n.mu.Lock()
	if last := len(n.idle) - 1; last >= 0 {
		defer n.mu.Unlock()
		s := n.idle[last]
		n.idle = n.idle[:last]
		return s, nil
	}
	n.mu.Unlock()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	members, err := n.client.GetMembers(ctx, &pdpb.GetMembersRequest{})
	if err != nil {
		return nil, err
	}
	s := &stream{header: &pdpb.RequestHeader{ClusterId: members.GetHeader().GetClusterId()}}
	ctx, s.cancel = context.WithCancel(context.Background())
	if s.PD_TsoClient, err = n.client.Tso(ctx); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

func (n *node) close() {
	for _, s := range n.idle {
		s.cancel()
	}
	_ = n.conn.Close()
}

// refusal returns an error of gRPC in words that are the same each time: those of a connection have its port.
func refusal(err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return driver.Errorf(driver.Unavailable, "gRPC: %v", code)
	default:
		return driver.Errorf(driver.Unavailable, "%.100s", status.Convert(err).Message())
	}
}
