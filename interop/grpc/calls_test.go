package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

func get(n uint64) *isotonev1.TimestampsGetRequest {
	return &isotonev1.TimestampsGetRequest{Count: proto.Uint64(n)}
}

// wants demands a code, and the reason in the details.
func wants(t *testing.T, err error, code codes.Code, reason string) (info *errdetails.ErrorInfo, retry *errdetails.RetryInfo) {
	t.Helper()
	s := status.Convert(err)
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	if s.Code() != code || info.GetReason() != reason || reason != "" && info.GetDomain() != "isotone" {
		t.Errorf("%v, %v, %v; want %v, %q", s.Code(), s.Message(), s.Details(), code, reason)
	}
	return info, retry
}

func TestGet_AnswersAndErrors(t *testing.T) {
	eachServer(t, func(t *testing.T, s *site) {
		c, ctx := isotonev1.NewTimestampsClient(dial(t, s.addr)), soon(t)
		var header metadata.MD
		a, err := c.Get(ctx, get(1<<32), grpc.Header(&header))
		if err != nil || len(a.GetWide()) != isotone.TimestampSize || a.Count != 1<<32 {
			t.Fatalf("%v, %v", a, err)
		}
		if got := header.Get("isotone-cluster"); len(got) != 1 || got[0] != "0000000000000abc" {
			t.Errorf("%v", header)
		}
		_, err = c.Get(ctx, get(0))
		wants(t, err, codes.InvalidArgument, "invalid_argument")
		s.fail(&isotone.Error{Code: isotone.CodeNotLeader, Message: "not the leader", Leader: "10.1.2.3:8080"})
		_, err = c.Get(ctx, get(1))
		if info, _ := wants(t, err, codes.Unavailable, "not_leader"); info.GetMetadata()["leader"] != "10.1.2.3:8080" {
			t.Errorf("%v", info)
		}
		s.fail(&isotone.Error{Code: isotone.CodeOverloaded, Message: strings.Repeat("größer: 100 %\n", 9), RetryAfter: 3 * time.Second})
		_, err = c.Get(ctx, get(1))
		if _, retry := wants(t, err, codes.ResourceExhausted, "overloaded"); retry.GetRetryDelay().GetSeconds() != 3 || !strings.HasPrefix(status.Convert(err).Message(), "größer: 100 %\n") {
			t.Errorf("%v: %v", err, retry)
		}
		_, err = c.Get(ctx, get(1), grpc.UseCompressor(gzip.Name))
		wants(t, err, codes.Unimplemented, "invalid_argument")
		err = dial(t, s.addr).Invoke(ctx, "/isotone.v1.Timestamps/Take", get(1), &isotonev1.TimestampsGetResponse{})
		wants(t, err, codes.Unimplemented, "not_found")
		_, err = isotonev1.NewIdsClient(dial(t, s.addr)).Get(ctx, &isotonev1.IdsGetRequest{})
		wants(t, err, codes.Unimplemented, "not_found") // this server makes no IDs
	})
}

func TestGet_DeadlinesAndCancellation(t *testing.T) {
	eachServer(t, func(t *testing.T, s *site) {
		s.hold()
		c := isotonev1.NewTimestampsClient(dial(t, s.addr))
		ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
		defer cancel()
		_, err := c.Get(ctx, get(1))
		if status.Code(err) != codes.DeadlineExceeded { // said by either side
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(soon(t))
		ended := make(chan error)
		go func() { _, err := c.Get(ctx, get(7)); ended <- err }()
		await.Until(t, "the server has it", func() bool { return s.waiting() >= 2 })
		cancel()
		wants(t, <-ended, codes.Canceled, "")
		s.release()
		if _, err := c.Get(soon(t), get(1)); err != nil {
			t.Error(err)
		}
	})
}

func TestStream_AThousandCallersShareRounds(t *testing.T) {
	s := startInLoop(t)
	st, err := isotonev1.NewTimestampsClient(dial(t, s.addr)).Stream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	const callers, each = 1000, 5
	var sending sync.Mutex
	waits := make([]chan *isotonev1.TimestampsStreamResponse, callers)
	for i := range waits {
		waits[i] = make(chan *isotonev1.TimestampsStreamResponse, 1)
	}
	var all sync.WaitGroup
	seen := make([]map[string]bool, callers)
	for i := range callers {
		seen[i] = map[string]bool{}
		all.Go(func() {
			var last []byte
			for range each {
				sending.Lock()
				err := st.Send(&isotonev1.TimestampsStreamRequest{Id: uint64(i), Get: get(uint64(1 + i%3))})
				sending.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				a := <-waits[i]
				if a.GetGot().GetCount() != uint64(1+i%3) || bytes.Compare(a.GetGot().GetWide(), last) <= 0 {
					t.Errorf("caller %d: %v after %x", i, a, last)
				}
				last = a.GetGot().GetWide()
				seen[i][string(last)] = true
			}
		})
	}
	for range callers * each {
		a, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		waits[a.Id] <- a
	}
	all.Wait()
	_ = st.CloseSend()
	if _, err := st.Recv(); err != io.EOF {
		t.Errorf("%v after the last answer", err)
	}
	if n := s.batches.Load(); n >= callers*each/2 {
		t.Errorf("%d batches for %d requests: they are not submitted together", n, callers*each)
	}
	different := map[string]bool{}
	for _, some := range seen {
		for first := range some {
			different[first] = true
		}
	}
	if len(different) != callers*each {
		t.Errorf("%d different timestamps", len(different))
	}
}

func TestStream_AnswersInOrderAndEachError(t *testing.T) {
	s := startInLoop(t)
	st, err := isotonev1.NewTimestampsClient(dial(t, s.addr)).Stream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range []*isotonev1.TimestampsGetRequest{
		get(2), {Mode: isotonev1.ReadMode_READ_MODE_LEASE}, get(0), {Form: isotonev1.Form_FORM_U64}, {Floor: &isotonev1.TimestampsGetRequest_WideFloor{WideFloor: []byte("short")}}, nil,
	} {
		if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: uint64(10 * i), Get: r}); err != nil {
			t.Fatal(err)
		}
	}
	_ = st.CloseSend()
	for i := range 6 {
		a, err := st.Recv()
		if err != nil || a.Id != uint64(10*i) {
			t.Fatalf("%d: %v, %v", i, a, err)
		}
		refused := i == 2 || i == 4
		if refused {
			wants(t, status.FromProto(a.GetError()).Err(), codes.InvalidArgument, "invalid_argument")
		} else if a.GetGot() == nil || (i == 3) != (a.GetGot().GetU64() != 0) {
			t.Errorf("%d: %v", i, a)
		}
	}
	if _, err := st.Recv(); err != io.EOF {
		t.Error(err)
	}
}

// TestStream_HoldsABoundedNumber: while nothing is answered, the server stops reading.
func TestStream_HoldsABoundedNumber(t *testing.T) {
	s := startInLoop(t)
	s.hold()
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	st, err := isotonev1.NewTimestampsClient(dial(t, s.addr)).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const sent = 100_000
	ended := make(chan error, 1)
	go func() {
		for i := range sent {
			if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: uint64(i), Get: get(1)}); err != nil {
				ended <- err
				return
			}
		}
		ended <- st.CloseSend()
	}()
	const most, each = 2, 512
	await.Until(t, "the queue is full", func() bool { return s.holding() == most })
	other := healthv1.NewHealthClient(dial(t, s.addr)) // the unread requests may fill the window of their connection
	for range 100 {                                    // the server has time to read more
		if _, err := other.Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.holding(); n > most || s.waiting() > most*each {
		t.Errorf("%d requests in %d batches wait, want at most %d", s.waiting(), n, most)
	}
	s.release()
	for i := range sent {
		if a, err := st.Recv(); err != nil || a.Id != uint64(i) || a.GetGot() == nil {
			t.Fatalf("%d: %v, %v", i, a, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestStream_EndsWhenTheNodeStops(t *testing.T) {
	s := startInLoop(t)
	for _, reason := range []struct {
		name string
		stop func()
	}{
		{"another node leads", func() { s.change(func(st *front.Status) { st.Draining, st.Leader = true, 2 }) }},
		{"the server stops", s.web.EndWaits},
	} {
		s.hold()
		st, err := isotonev1.NewTimestampsClient(dial(t, s.addr)).Stream(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: 5}); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the server has it", func() bool { return s.waiting() == 1 })
		reason.stop()
		if reason.name == "another node leads" { // what is noticed with the next request
			if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: 6}); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the server has it, too", func() bool { return s.waiting() == 2 })
		}
		s.release()
		if a, err := st.Recv(); err != nil || a.Id != 5 || a.GetGot() == nil {
			t.Errorf("%s: %v, %v", reason.name, a, err)
		}
		for err == nil {
			_, err = st.Recv()
		}
		wants(t, err, codes.Unavailable, "no_leader")
		s.change(func(st *front.Status) { st.Draining, st.Leader = false, 1 })
	}
}

func TestHealth_FollowsReadiness(t *testing.T) {
	eachServer(t, func(t *testing.T, s *site) {
		c, ctx := healthv1.NewHealthClient(dial(t, s.addr)), soon(t)
		w, err := c.Watch(ctx, &healthv1.HealthCheckRequest{Service: "isotone.v1.Timestamps"})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING, healthv1.HealthCheckResponse_SERVING} {
			reason := []string{"", "no leader", ""}[i]
			s.change(func(st *front.Status) { st.NotReady, st.NotReadyTimestamps = reason, reason })
			if a, err := w.Recv(); err != nil || a.Status != want {
				t.Fatalf("watched: %v, %v; want %v", a, err, want)
			}
			for _, service := range []string{"", "isotone.v1.Timestamps"} {
				if a, err := c.Check(ctx, &healthv1.HealthCheckRequest{Service: service}); err != nil || a.Status != want {
					t.Errorf("%q: %v, %v; want %v", service, a, err, want)
				}
			}
		}
		_, err = c.Check(ctx, &healthv1.HealthCheckRequest{Service: "nobody"})
		wants(t, err, codes.NotFound, "not_found")
		w, err = c.Watch(ctx, &healthv1.HealthCheckRequest{Service: "nobody"})
		if a, err2 := w.Recv(); err != nil || err2 != nil || a.Status != healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
			t.Errorf("%v, %v, %v", a, err, err2)
		}
		s.web.EndWaits()
		_, err = w.Recv()
		wants(t, err, codes.Unavailable, "no_leader")
	})
}

func TestReflection_HasTheSchema(t *testing.T) {
	eachServer(t, func(t *testing.T, s *site) {
		st, err := reflectionv1.NewServerReflectionClient(dial(t, s.addr)).ServerReflectionInfo(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(r *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
			t.Helper()
			if err := st.Send(r); err != nil {
				t.Fatal(err)
			}
			a, err := st.Recv()
			if err != nil || !proto.Equal(a.OriginalRequest, r) {
				t.Fatalf("%v, %v", a, err)
			}
			return a
		}
		a := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		if got := fmt.Sprint(a.GetListServicesResponse()); !strings.Contains(got, "isotone.v1.Timestamps") || !strings.Contains(got, "grpc.health.v1.Health") {
			t.Error(got)
		}
		a = ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "isotone.v1.Ids"}})
		if len(a.GetFileDescriptorResponse().GetFileDescriptorProto()) != 1 {
			t.Errorf("%v", a)
		}
		a = ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "none.proto"}})
		if a.GetErrorResponse().GetErrorCode() != int32(codes.NotFound) {
			t.Errorf("%v", a)
		}
		_ = st.CloseSend()
		if _, err := st.Recv(); err != io.EOF {
			t.Error(err)
		}
	})
}
