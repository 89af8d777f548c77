package thriftrpc_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/snowflake"
)

var background = context.Background()

// message writes one message with a protocol of the library, in a frame or not.
func message(t testing.TB, protocol func(thrift.TTransport) thrift.TProtocol, framed bool, name string, kind thrift.TMessageType, seq int32, body interface {
	Write(context.Context, thrift.TProtocol) error
}) []byte {
	t.Helper()
	memory := thrift.NewTMemoryBuffer()
	var transport thrift.TTransport = memory
	if framed {
		transport = thrift.NewTFramedTransportConf(memory, nil)
	}
	p := protocol(transport)
	w := writer{ctx: background, p: p}
	w.do(p.WriteMessageBegin(background, name, kind, seq))
	w.do(body.Write(background, p))
	w.do(p.WriteMessageEnd(background))
	w.do(p.Flush(background))
	if w.err != nil || memory.Len() == 0 {
		t.Fatalf("%d bytes, %v", memory.Len(), w.err)
	}
	return memory.Bytes()
}

// session makes a session of a fresh node.
func session(change ...func(*thriftrpc.Config)) (*thriftrpc.Session, *ids) {
	f := &ids{}
	cfg := thriftrpc.Config{IDs: f}
	for _, c := range change {
		c(&cfg)
	}
	return thriftrpc.NewSession(cfg), f
}

// workAll is what a session answers to in, and how it ends.
func workAll(s *thriftrpc.Session, in []byte) (out []byte, rest int, err error) {
	for {
		var used int
		used, out, err = s.Work(in, out)
		in = in[used:]
		if err != nil || used == 0 {
			return out, len(in), err
		}
	}
}

// all are the protocols of the library, and simplejson, which it can only write.
func all() map[string]func(thrift.TTransport) thrift.TProtocol {
	m := map[string]func(thrift.TTransport) thrift.TProtocol{"simplejson": simpleJSON}
	for name, protocol := range protocols {
		m[name] = protocol
	}
	return m
}

func TestSession_AnswersAreThoseOfTheLibrary(t *testing.T) {
	clock := &snowflake.InvalidSystemClock{Fault: snowflake.ClockBehind, Now: 5, Bound: 7000}
	wantID := int64(firstID)
	wantClock := thrift.NewTApplicationException(thrift.INTERNAL_ERROR, "clock: the clock went back: it is at 5 ms, 6995 ms behind the last ID")
	for _, tt := range []struct {
		what   string
		method string
		kind   thrift.TMessageType
		call   arguments
		fails  error
		answer interface {
			Write(context.Context, thrift.TProtocol) error
		}
	}{
		{"id", "get_id", thrift.CALL, withAgent("me"), nil, &result{success: &wantID}},
		{"odd agent", "get_id", thrift.CALL, withAgent("a b"), nil, &result{success: &wantID}},
		{"no agent", "get_id", thrift.CALL, arguments{}, nil, &result{success: &wantID}},
		{"clock", "get_id", thrift.CALL, withAgent("me"), clock, wantClock},
		{"worker's clock", "get_worker_id", thrift.CALL, arguments{}, clock, wantClock},
		{"unknown", "get_\"id\x01é", thrift.CALL, arguments{}, nil, thrift.NewTApplicationException(thrift.UNKNOWN_METHOD, `there is no method "get_\"id\x01\u00e9"`)},
		{"oneway", "get_id", thrift.ONEWAY, withAgent("me"), nil, thrift.NewTApplicationException(thrift.INVALID_MESSAGE_TYPE_EXCEPTION, "a message must be a call that wants an answer")},
		{"reply", "get_id", thrift.REPLY, withAgent("me"), nil, thrift.NewTApplicationException(thrift.INVALID_MESSAGE_TYPE_EXCEPTION, "a message must be a call that wants an answer")},
		{"exception", "get_worker_id", thrift.EXCEPTION, arguments{}, nil, thrift.NewTApplicationException(thrift.INVALID_MESSAGE_TYPE_EXCEPTION, "a message must be a call that wants an answer")},
		{"type 0", "get_worker_id", 0, arguments{}, nil, thrift.NewTApplicationException(thrift.INVALID_MESSAGE_TYPE_EXCEPTION, "a message must be a call that wants an answer")},
		{"not UTF-8", "get_id", thrift.CALL, withAgent("me"), errors.New("a\xffb"), thrift.NewTApplicationException(thrift.INTERNAL_ERROR, "internal: a?b")},
		{"long", "get_id", thrift.CALL, withAgent("me"), errors.New(strings.Repeat("x", 1000)), thrift.NewTApplicationException(thrift.INTERNAL_ERROR, "internal: "+strings.Repeat("x", 502))},
	} {
		for name, protocol := range all() {
			for _, framed := range []bool{false, true} {
				for _, seq := range []int32{0, 1, -1, 1 << 30, -1 << 31} {
					s, f := session()
					f.fail(tt.fails)
					want := thrift.REPLY
					if _, fault := tt.answer.(thrift.TApplicationException); fault {
						want = thrift.EXCEPTION
					}
					got, rest, err := workAll(s, message(t, protocol, framed, tt.method, tt.kind, seq, tt.call))
					wanted := message(t, protocol, framed, tt.method, want, seq, tt.answer)
					if !bytes.Equal(got, wanted) || rest != 0 || err != thriftrpc.ErrShort {
						t.Errorf("%s, %s, framed %v, seq %d: %d left, %v\n got %q\nwant %q", tt.what, name, framed, seq, rest, err, got, wanted)
					}
				}
			}
		}
	}
}

func TestSession_PipelinesAreAnsweredInOrderWhateverTheirPieces(t *testing.T) {
	const n = 200
	for name, protocol := range all() {
		for _, framed := range []bool{false, true} {
			var in, want []byte
			for i := range int32(n) {
				in = append(in, message(t, protocol, framed, "get_id", thrift.CALL, i, withAgent("me"))...)
				id := int64(firstID) + int64(i)
				want = append(want, message(t, protocol, framed, "get_id", thrift.REPLY, i, &result{success: &id})...)
			}
			for _, piece := range []int{1, 7, 1000, len(in)} {
				s, _ := session()
				var got, held []byte
				for at := 0; at < len(in); at += piece {
					held = append(held, in[at:min(at+piece, len(in))]...)
					out, rest, err := workAll(s, held)
					if err != thriftrpc.ErrShort {
						t.Fatalf("%s: %v", name, err)
					}
					got = append(got, out...)
					held = held[len(held)-rest:]
				}
				if !bytes.Equal(got, want) || len(held) > 0 {
					t.Errorf("%s, framed %v, pieces of %d: %d bytes of answers, %d left, want %d", name, framed, piece, len(got), len(held), len(want))
				}
			}
		}
	}
}

func TestSession_AFrameMayHoldSeveralCalls(t *testing.T) {
	for name, protocol := range all() {
		calls := append(message(t, protocol, false, "get_id", thrift.CALL, 1, withAgent("me")),
			message(t, protocol, false, "get_timestamp", thrift.CALL, 2, arguments{})...)
		in := append([]byte{0, 0, 0, byte(len(calls))}, calls...)
		id, now := int64(firstID), int64(nowMillis)
		want := append(message(t, protocol, true, "get_id", thrift.REPLY, 1, &result{success: &id}),
			message(t, protocol, true, "get_timestamp", thrift.REPLY, 2, &result{success: &now})...)
		for _, most := range []int{1, 2} {
			s, _ := session(func(c *thriftrpc.Config) { c.Limits.PipelineMax = most })
			got, rest, err := workAll(s, in)
			if !bytes.Equal(got, want) || rest != 0 || err != thriftrpc.ErrShort {
				t.Errorf("%s: %q, %d left, %v", name, got, rest, err)
			}
		}
	}
}

func TestSession_StopsForAWrite(t *testing.T) {
	in := bytes.Repeat(message(t, protocols["binary"], true, "get_id", thrift.CALL, 1, withAgent("me")), 100)
	s, f := session(func(c *thriftrpc.Config) { c.Limits.PipelineMax = 10 })
	used, out, err := s.Work(in, nil)
	if err != nil || used != len(in)/10 || len(out) == 0 || f.made.Load() != 10 {
		t.Errorf("used %d of %d, %d bytes of answers, %d ids, %v", used, len(in), len(out), f.made.Load(), err)
	}
	unknown := message(t, protocols["binary"], false, strings.Repeat("n", 4000), thrift.CALL, 1, arguments{})
	s, _ = session()
	if _, out, err = s.Work(bytes.Repeat(unknown, 100), nil); err != nil || len(out) > 40<<10 {
		t.Errorf("%d bytes of answers before a write, %v", len(out), err)
	}
}

func TestSession_HotPathDoesNotAllocate(t *testing.T) {
	for name, protocol := range all() {
		for _, framed := range []bool{false, true} {
			in := bytes.Repeat(message(t, protocol, framed, "get_id", thrift.CALL, 7, withAgent("me")), 16)
			s, _ := session(func(c *thriftrpc.Config) { c.Observe = func(string, string, string) {} })
			out := make([]byte, 0, 4096)
			allocs := testing.AllocsPerRun(100, func() {
				if used, _, err := s.Work(in, out[:0]); used != len(in) || err != thriftrpc.ErrShort {
					t.Fatalf("used %d of %d, %v", used, len(in), err)
				}
			})
			if allocs != 0 {
				t.Errorf("%s, framed %v: %v allocations for 16 calls", name, framed, allocs)
			}
		}
	}
}

func BenchmarkSession(b *testing.B) {
	for _, name := range []string{"binary", "compact", "json", "simplejson"} {
		b.Run(name, func(b *testing.B) {
			in := message(b, all()[name], true, "get_id", thrift.CALL, 7, withAgent("isotone-bench"))
			s, _ := session()
			out := make([]byte, 0, 4096)
			for b.Loop() {
				if _, _, err := s.Work(in, out[:0]); err != thriftrpc.ErrShort {
					b.Fatal(err)
				}
			}
		})
	}
}
