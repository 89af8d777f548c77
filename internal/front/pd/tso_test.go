package pd_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/pd"
)

const testCluster = 0x5e1f0c3a9b2d4e71

// backend issues consecutive timestamps, at once or, if it is held, by release.
type backend struct {
	next    isotone.Timestamp64
	err     error
	held    bool
	waiting []*front.Batch
	batches int
	modes   []isotone.ReadMode
	status  front.Status
}

func newBackend() *backend {
	return &backend{next: isotone.NewTimestamp64(1_800_000_000_000, 1<<18-5), status: front.Status{ClusterID: testCluster}}
}

func (b *backend) Status() *front.Status { return &b.status }

func (b *backend) Submit(batch *front.Batch) {
	b.batches++
	b.modes = append(b.modes, batch.Mode)
	if b.held {
		b.waiting = append(b.waiting, batch)
		return
	}
	b.answer(batch)
}

func (b *backend) answer(batch *front.Batch) {
	batch.Err = b.err
	for i, n := range batch.Counts {
		batch.Ranges[i] = isotone.Range{First: b.next.Timestamp(), Count: n}
		b.next += isotone.Timestamp64(n)
	}
	batch.Done(batch)
}

func (b *backend) release() {
	waiting := b.waiting
	b.waiting = nil
	for _, batch := range waiting {
		b.answer(batch)
	}
}

// caller is the side of a call that internal/front/http2 has.
type caller struct {
	t       *testing.T
	call    grpc.Duplex
	in, out []byte
	last    bool
	taking  bool
	end     error
}

func open(t *testing.T, b *backend, cfg pd.Config) *caller {
	c := &caller{t: t}
	cfg.Status = b.Status
	c.call = pd.New(cfg).Open("/pdpb.PD/Tso", b, access.Of(nil), c)
	return c
}

func (c *caller) Send(frames []byte) { c.out = append(c.out, frames...) }

func (c *caller) Resume() {
	if c.taking {
		return
	}
	c.taking = true
	defer func() { c.taking = false }()
	for c.end == nil {
		used, end := c.call.Take(c.in, c.last)
		c.in, c.end = c.in[used:], end
		if end != nil {
			c.call.Closed()
		}
		if used == 0 {
			return
		}
	}
}

// send has bytes arrive.
func (c *caller) send(b []byte) {
	c.in = append(c.in, b...)
	c.Resume()
}

func request(cluster, count uint64, location string) []byte {
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendBytes(b, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), cluster))
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), count)
	if location != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), location)
	}
	return grpc.EndFrame(append(grpc.BeginFrame(nil), b...), 0)
}

func ask(count uint64) []byte { return request(testCluster, count, "global") }

// answers returns the answers so far: what pd.AppendAnswer makes of the last timestamps that were found in them.
func (c *caller) answers() (list []isotone.Timestamp64, counts []uint64) {
	c.t.Helper()
	for rest := c.out; len(rest) > 0; {
		message, after, err := grpc.ParseFrame(rest)
		if err != nil || message == nil {
			c.t.Fatalf("the output has no message: %v", err)
		}
		rest = after
		var count, physical, logical uint64
		_ = grpc.EachField(message, func(f grpc.Field) error {
			if f.Is(2, protowire.VarintType) {
				count = f.N
			}
			if f.Is(3, protowire.BytesType) {
				return grpc.EachField(f.Bytes, func(f grpc.Field) error {
					if f.Is(1, protowire.VarintType) {
						physical = f.N
					}
					if f.Is(2, protowire.VarintType) {
						logical = f.N
					}
					return nil
				})
			}
			return nil
		})
		last := isotone.NewTimestamp64(physical, logical)
		if string(message) != string(pd.AppendAnswer(nil, testCluster, count, last)) {
			c.t.Fatalf("the answer %x has something else", message)
		}
		if logical < count-1 {
			c.t.Fatalf("%d timestamps end at counter %d: they are not in one millisecond", count, logical)
		}
		list, counts = append(list, last), append(counts, count)
	}
	return list, counts
}

func TestTso_AnswersInOrderHoweverRequestsAreCut(t *testing.T) {
	counts := []uint64{1, 3, 10_000, 1, pd.CountMax, 2}
	var text []byte
	for _, n := range counts {
		text = append(text, ask(n)...)
	}
	for _, size := range []int{1, 2, 3, 7, len(text)} {
		c := open(t, newBackend(), pd.Config{Mode: isotone.ReadLease})
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			c.send(rest[:min(size, len(rest))])
		}
		list, got := c.answers()
		if len(got) != len(counts) {
			t.Fatalf("in pieces of %d bytes: %d answers to %d requests", size, len(got), len(counts))
		}
		var before isotone.Timestamp64
		for i, last := range list {
			if got[i] != counts[i] || last-isotone.Timestamp64(got[i]-1) <= before {
				t.Errorf("answer %d: %d timestamps up to %v, want %d above %v", i, got[i], last, counts[i], before)
			}
			before = last
		}
		c.last = true
		if c.Resume(); c.end != io.EOF {
			t.Errorf("the end is %v, want io.EOF", c.end)
		}
	}
}

func TestTso_WhatWaitsSharesARequest(t *testing.T) {
	b := newBackend()
	b.held = true
	c := open(t, b, pd.Config{Mode: isotone.ReadLease})
	c.send(ask(1))
	for range 100 {
		c.send(ask(2))
	}
	if b.batches != 1 {
		t.Fatalf("%d requests to the backend while the first is under way, want 1", b.batches)
	}
	b.release()
	b.release()
	if _, counts := c.answers(); len(counts) != 101 || b.batches != 2 || b.modes[1] != isotone.ReadLease {
		t.Errorf("%d answers by %d requests with the modes %v; want 101 by 2, with lease", len(counts), b.batches, b.modes)
	}
}

// The answers to what has come at once are bounded: a client may not read them.
func TestTso_TheAnswersOfABatchAreBounded(t *testing.T) {
	b := newBackend()
	b.held = true
	c := open(t, b, pd.Config{})
	c.send(bytes.Repeat(ask(1), 1500))
	b.release()
	if _, counts := c.answers(); len(counts) != 1024 {
		t.Errorf("%d answers at once, want 1024", len(counts))
	}
	b.release()
	if _, counts := c.answers(); len(counts) != 1500 || b.batches != 2 {
		t.Errorf("%d answers by %d requests to the backend, want 1500 by 2", len(counts), b.batches)
	}
}

func TestTso_RefusesWhatPDRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		request []byte
		cluster uint64
		code    isotone.Code
		want    string
	}{
		"another cluster": {request(7, 1, ""), testCluster, isotone.CodeWrongCluster, "mismatch cluster id, need 6782153009694330481 but got 7"},
		"no cluster yet":  {ask(1), 0, isotone.CodeNoLeader, "does not know the ID"},
		"no count":        {ask(0), testCluster, isotone.CodeInvalidArgument, "want 1 to 131072"},
		"a large count":   {ask(pd.CountMax + 1), testCluster, isotone.CodeInvalidArgument, "want 1 to 131072"},
		"a local order":   {request(testCluster, 1, "dc-1"), testCluster, isotone.CodeInvalidArgument, "global timestamps only"},
		"no protobuf":     {[]byte("\x00\x00\x00\x00\x01\xff"), testCluster, isotone.CodeInvalidArgument, "protobuf"},
		"compressed":      {[]byte("\x01\x00\x00\x00\x00"), testCluster, isotone.CodeInvalidArgument, "compressed"},
		"a large message": {[]byte("\x00\x00\x01\x00\x00"), testCluster, isotone.CodeInvalidArgument, "65536 bytes"},
	} {
		b := newBackend()
		one := open(t, b, pd.Config{})
		one.send(ask(5)) // what comes before the bad request is answered
		b.status.ClusterID = c.cluster
		one.send(c.request)
		if _, counts := one.answers(); len(counts) != 1 || front.ErrorOf(one.end).Code != c.code || !strings.Contains(one.end.Error(), c.want) {
			t.Errorf("%s: %d answers, and %v; want one, and %s with %q", name, len(counts), one.end, c.code, c.want)
		}
	}
}

func TestTso_EndsWithAnErrorForHalfAMessage(t *testing.T) {
	c := open(t, newBackend(), pd.Config{})
	c.send(ask(1)[:7])
	c.last = true
	if c.Resume(); !errors.Is(c.end, isotone.ErrInvalidArgument) {
		t.Errorf("got %v", c.end)
	}
}

// Clients of PD look for these words.
func TestTso_SaysThatItDoesNotLead(t *testing.T) {
	for _, err := range []*isotone.Error{isotone.ErrNotLeader, isotone.ErrNoLeader} {
		b := newBackend()
		b.err = err
		c := open(t, b, pd.Config{})
		c.send(append(ask(1), ask(0)...)) // the first failure counts
		if !errors.Is(c.end, err) || !strings.Contains(c.end.Error(), "is not leader") {
			t.Errorf("got %v, want %v", c.end, err)
		}
	}
}

func TestTso_StopsWhenNothingIsUnderWay(t *testing.T) {
	b := newBackend()
	b.held = true
	busy, idle := open(t, b, pd.Config{}), open(t, b, pd.Config{})
	busy.send(append(ask(1), ask(2)...))
	for _, c := range []*caller{busy, idle} {
		c.call.Stop()
		c.Resume()
	}
	if !errors.Is(idle.end, isotone.ErrNoLeader) || busy.end != nil {
		t.Fatalf("idle: %v, busy: %v; want an end for the idle one", idle.end, busy.end)
	}
	for _, want := range []string{"is not leader", "nothing came for long"} { // it is called for an idle connection, too
		if !strings.Contains(idle.end.Error(), want) {
			t.Errorf("%v does not say %q", idle.end, want)
		}
	}
	b.release()
	if _, counts := busy.answers(); len(counts) != 2 || !errors.Is(busy.end, isotone.ErrNoLeader) {
		t.Errorf("%d answers, and %v; want 2, and the end", len(counts), busy.end)
	}
}

func TestTso_NothingIsSentAfterTheEnd(t *testing.T) {
	b := newBackend()
	b.held = true
	c := open(t, b, pd.Config{})
	c.send(ask(1))
	c.call.Closed()
	b.release()
	if len(c.out) > 0 {
		t.Errorf("%d bytes were sent", len(c.out))
	}
}

func TestTso_DoesNotUseAnAnswerOfAnotherLength(t *testing.T) {
	b := newBackend()
	b.held = true
	c := open(t, b, pd.Config{})
	c.send(ask(10))
	b.waiting[0].Ranges[0] = isotone.Range{First: b.next.Timestamp(), Count: 9}
	b.waiting[0].Done(b.waiting[0])
	if len(c.out) > 0 || !errors.Is(c.end, isotone.ErrInternal) {
		t.Errorf("%d bytes, and %v; want none, and internal", len(c.out), c.end)
	}
}

// Each request is counted once, also one that ends its call; the call itself is none.
func TestTso_RequestsAreCounted(t *testing.T) {
	counted := map[string]int{}
	cfg := pd.Config{Observe: func(protocol, code string, requests int, _ time.Duration) { counted[protocol+" "+code] += requests }}
	for _, last := range [][]byte{nil, request(7, 1, ""), ask(0), ask(1)[:7]} {
		c := open(t, newBackend(), cfg)
		c.send(slices.Concat(ask(1), ask(2), last))
		c.last = true
		if c.Resume(); c.end == nil {
			t.Errorf("the call goes on after %x", last)
		}
	}
	_, _, _ = post(t, pd.Config{Status: newBackend().Status, Observe: cfg.Observe}, "/pdpb.PD/GetRegion", empty, false)
	if want := map[string]int{"pd ok": 8, "pd not_found": 1, "pd wrong_cluster": 1, "pd invalid_argument": 2}; !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
}

// A call that waits for its client holds little, however much it has had to answer.
func TestTso_HoldsLittleWhileItWaits(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const calls = 200
	text := bytes.Repeat(ask(1), 1000)
	kept := make([]grpc.Duplex, calls)
	before := heap()
	for i := range kept {
		c := open(t, newBackend(), pd.Config{})
		c.send(text)
		if _, counts := c.answers(); len(counts) != 1000 {
			t.Fatalf("%d answers", len(counts))
		}
		c.in, c.out = nil, nil // the client's
		kept[i] = c.call
	}
	if each := (int64(heap()) - int64(before)) / calls; each > 4<<10 {
		t.Errorf("%d bytes for each call", each)
	}
	runtime.KeepAlive(kept)
}
