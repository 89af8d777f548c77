package grpc

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
)

// holding is a backend that answers when it is told.
type holding []*front.Batch

func (h *holding) Status() *front.Status { return &front.Status{} }
func (h *holding) Submit(b *front.Batch) { *h = append(*h, b) }
func (h *holding) answer() {
	held := *h
	*h = nil
	for _, b := range held {
		for i, n := range b.Counts {
			b.Ranges[i].Count = n
		}
		b.Done(b)
	}
}

// sending counts bytes.
type sending int

func (s *sending) Send(frames []byte) { *s += sending(len(frames)) }
func (s *sending) Resume()            {}

func newStream(b front.Backend, to Sender) *stream {
	return &stream{server: New(Config{}), backend: b, session: &access.Session{}, to: to, closed: make(chan struct{})}
}

// requests returns n frames with a message.
func requests(n int, message string) []byte {
	return bytes.Repeat(EndFrame(append(BeginFrame(nil), message...), 0), n)
}

// TestStream_ATakeSendsATurnAtMost: Take is called again once the client's windows have room for what was sent.
func TestStream_ATakeSendsATurnAtMost(t *testing.T) {
	for name, refused := range map[string]string{"count 0": "\x12\x02\x08\x00", "mode 7": "\x12\x02\x10\x07"} {
		var sent sending
		s, one := newStream(&holding{}, &sent), len(requests(1, refused))
		used, err := s.Take(requests(3*turnMax, refused), false)
		if used != turnMax*one || err != nil || sent == 0 {
			t.Errorf("%s: %d requests were taken at once, %v, %d bytes sent; want %d", name, used/one, err, sent, turnMax)
		}
	}
}

// TestStream_KeepsLittleWhenItIsSilent, whatever it had before.
func TestStream_KeepsLittleWhenItIsSilent(t *testing.T) {
	var held holding
	s := newStream(&held, new(sending))
	b := requests(turnsMax*turnMax, "")
	for range turnsMax {
		used, err := s.Take(b, false)
		if b = b[used:]; err != nil {
			t.Fatal(err)
		}
	}
	if !s.IsBusy() {
		t.Error("not busy while answers are under way")
	}
	held.answer()
	if len(b) > 0 || s.IsBusy() || cap(s.out) > outKept {
		t.Errorf("%d bytes are left, busy: %t, %d bytes are kept for answers", len(b), s.IsBusy(), cap(s.out))
	}
	for i := range s.turns {
		if kept := &s.turns[i]; cap(kept.items) > keptMax || cap(kept.batches) > keptMax {
			t.Errorf("turn %d keeps %d items and %d batches", i, cap(kept.items), cap(kept.batches))
		}
	}
}

// TestStream_CountsWhatAClientThatHasLeftAskedFor, as the cluster has issued it.
func TestStream_CountsWhatAClientThatHasLeftAskedFor(t *testing.T) {
	var held holding
	var sent sending
	s, counted := newStream(&held, &sent), 0
	s.server.cfg.Observe = func(_, code string, _ time.Duration) {
		if counted++; code != "ok" {
			t.Error(code)
		}
	}
	const asked = 3
	if _, err := s.Take(requests(asked, ""), false); err != nil {
		t.Fatal(err)
	}
	s.Closed()
	if held.answer(); counted != asked || sent > 0 {
		t.Errorf("%d requests were counted, %d bytes sent; want %d and none", counted, sent, asked)
	}
}

func TestStream_CountsARequestThatEndsIt(t *testing.T) {
	for name, b := range map[string]string{"compressed": "\x01\x00\x00\x00\x00", "malformed": "\x00\x00\x00\x00\x01\xff", "in part": "\x00\x00"} {
		s, counted := newStream(&holding{}, new(sending)), 0
		s.server.cfg.Observe = func(_, code string, _ time.Duration) {
			if counted++; code != "invalid_argument" {
				t.Errorf("%s: %s", name, code)
			}
		}
		if used, end := s.Take([]byte(b), true); end == nil || used > 0 || counted != 1 {
			t.Errorf("%s: %d bytes were taken, the end is %v, %d requests were counted; want 1", name, used, end, counted)
		}
	}
}

// TestStream_RequestsOfATimelineShareABatch, in whatever order they come, and with those of no other.
func TestStream_RequestsOfATimelineShareABatch(t *testing.T) {
	var held holding
	s := newStream(&held, new(sending))
	of := func(timeline string) []byte {
		get := []byte{}
		if timeline != "" {
			get = named(get, timeline)
		}
		return requests(1, string(protowire.AppendBytes([]byte{0x12}, get)))
	}
	names := []string{"", "a", "b"}
	b := []byte{}
	for range 20 {
		for _, name := range names {
			b = append(b, of(name)...)
		}
	}
	if used, err := s.Take(b, false); used != len(b) || err != nil {
		t.Fatalf("%d of %d bytes were taken, %v", used, len(b), err)
	}
	if len(held) != len(names) {
		t.Fatalf("%d batches, want %d", len(held), len(names))
	}
	for i, name := range names {
		if got := held[i]; got.Timeline != name || len(got.Counts) != 20 {
			t.Errorf("a batch of timeline %q with %d requests, want %q and 20", got.Timeline, len(got.Counts), name)
		}
	}
	held.answer()
	many := []byte{}
	for i := range recentMax + 1 {
		many = append(many, of(fmt.Sprint(i))...)
	}
	many = append(append(many, of("0")...), of("1")...) // the first is no recent one, then neither is the second
	if _, err := s.Take(many, false); err != nil || len(held) != recentMax+3 {
		t.Errorf("%d batches, %v; want %d", len(held), err, recentMax+3)
	}
	held.answer()
}
