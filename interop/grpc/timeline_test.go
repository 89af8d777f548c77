package main

import (
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

// of asks for a timeline.
func of(timeline string) *isotonev1.TimestampsGetRequest {
	return &isotonev1.TimestampsGetRequest{Timeline: proto.String(timeline)}
}

// refusedNames are the errors of requests that name some timelines, in the miniature.
var refusedNames = map[string]struct {
	code   codes.Code
	reason string
	words  string
}{
	"":                      {codes.InvalidArgument, "invalid_argument", "a name of 0 bytes"},
	"a b":                   {codes.InvalidArgument, "invalid_argument", "letters, digits"},
	"größe":                 {codes.InvalidArgument, "invalid_argument", "letters, digits"},
	strings.Repeat("x", 65): {codes.InvalidArgument, "invalid_argument", "a name of 65 bytes"},
	"nothing":               {codes.NotFound, "not_found", `no timeline "nothing"`},
	"elsewhere":             {codes.Unavailable, "not_leader", "node 2"},
	"limited":               {codes.ResourceExhausted, "quota_exceeded", ""},
	"crowded":               {codes.ResourceExhausted, "overloaded", ""},
}

// wantsRefusal demands the error of a timeline.
func wantsRefusal(t *testing.T, timeline string, err error) {
	t.Helper()
	want := refusedNames[timeline]
	info, retry := wants(t, err, want.code, want.reason)
	if !strings.Contains(status.Convert(err).Message(), want.words) {
		t.Errorf("timeline %q: %v, want %q", timeline, err, want.words)
	}
	if isAt := info.GetMetadata()["leader"] == "10.1.2.3:8080"; isAt != (timeline == "elsewhere") {
		t.Errorf("timeline %q: %v", timeline, info)
	}
	if seconds := retry.GetRetryDelay().GetSeconds(); timeline == "limited" && seconds != 2 {
		t.Errorf("timeline %q: again after %d s", timeline, seconds)
	}
}

func TestGet_OfATimeline(t *testing.T) {
	eachServer(t, func(t *testing.T, s *site) {
		c, ctx := isotonev1.NewTimestampsClient(dial(t, s.addr)), soon(t)
		for _, name := range []string{"orders", "tenant-7/log", strings.Repeat("x", 64)} {
			a, err := c.Get(ctx, of(name))
			if err != nil || len(a.GetWide()) != 16 || binary.BigEndian.Uint64(a.GetWide()) != timeOf(name) {
				t.Errorf("%q: %v, %v", name, a, err)
			}
		}
		small := of("orders")
		small.Form, small.Count, small.Mode = isotonev1.Form_FORM_U64, proto.Uint64(9), isotonev1.ReadMode_READ_MODE_LEASE
		if a, err := c.Get(ctx, small); err != nil || a.GetU64() == 0 || a.Count != 9 {
			t.Errorf("%v, %v", a, err)
		}
		if a, err := c.Get(ctx, get(1)); err != nil || binary.BigEndian.Uint64(a.GetWide()) != timeOf("") {
			t.Errorf("the default order: %v, %v", a, err)
		}
		for name := range refusedNames {
			_, err := c.Get(ctx, of(name))
			wantsRefusal(t, name, err)
		}
	})
}

// TestStream_OfSeveralTimelines: each request has the answer of its own, in their order, and one that is refused ends nothing.
func TestStream_OfSeveralTimelines(t *testing.T) {
	s := startInLoop(t)
	st, err := isotonev1.NewTimestampsClient(dial(t, s.addr)).Stream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"orders", "stock-of-all"}
	for name := range refusedNames {
		names = append(names, name)
	}
	const rounds = 30
	go func() {
		for i := range rounds * (len(names) + 1) {
			r := &isotonev1.TimestampsStreamRequest{Id: uint64(i)}
			if at := i % (len(names) + 1); at > 0 {
				r.Get = of(names[at-1])
			}
			_ = st.Send(r)
		}
		_ = st.CloseSend()
	}()
	last := map[string]string{}
	for i := range rounds * (len(names) + 1) {
		a, err := st.Recv()
		if err != nil || a.Id != uint64(i) {
			t.Fatalf("%d: %v, %v", i, a, err)
		}
		name := ""
		if at := i % (len(names) + 1); at > 0 {
			name = names[at-1]
			if _, isRefused := refusedNames[name]; isRefused {
				wantsRefusal(t, name, status.FromProto(a.GetError()).Err())
				continue
			}
		}
		got := string(a.GetGot().GetWide())
		if len(got) != 16 || binary.BigEndian.Uint64([]byte(got)) != timeOf(name) || got <= last[name] {
			t.Fatalf("timeline %q: %v after %x", name, a, last[name])
		}
		last[name] = got
	}
	if _, err := st.Recv(); err != io.EOF {
		t.Error(err)
	}
}
