package thriftrpc_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/isotone/isotone/internal/front/thriftrpc"
)

// small are limits that a short input reaches.
func small(c *thriftrpc.Config) {
	c.Limits = thriftrpc.Limits{MessageBytesMax: 200, StringBytesMax: 60, DepthMax: 4, PipelineMax: 5}
}

func seeds(f *testing.F) {
	f.Helper()
	for _, protocol := range all() {
		for _, framed := range []bool{false, true} {
			for _, a := range []arguments{{}, withAgent("me"), withAgent("no agent"), {extra: writeText("a", "b")}} {
				one := message(f, protocol, framed, "get_id", thrift.CALL, 3, a)
				f.Add(one)
				f.Add(append(one, one...))
			}
			f.Add(message(f, protocol, framed, "get_id", thrift.CALL, -1, arguments{extra: someTypes}))
			f.Add(message(f, protocol, framed, "get_worker_id", thrift.ONEWAY, 1<<30, arguments{}))
			f.Add(message(f, protocol, framed, "x", thrift.CALL, 0, arguments{}))
		}
	}
	f.Add([]byte(`{"useragent":"me"}{}`))
	f.Add([]byte("[1 , \"get_id\",1,0,{\"1\":{\"str\":\"\\u006d\"}, \"2\":{\"lst\":[\"i64\",1,[[{}]]]}} ]\n"))
	f.Add([]byte("\x16\x03\x01\x00"))
	f.Add([]byte("\x00\x00\x00\x00"))
}

// someTypes writes few fields, of the types that nest.
func someTypes(ctx context.Context, p thrift.TProtocol) error {
	w := writer{ctx: ctx, p: p}
	w.do(p.WriteFieldBegin(ctx, "x", thrift.LIST, 5))
	w.do(p.WriteListBegin(ctx, thrift.SET, 1))
	w.do(p.WriteSetBegin(ctx, thrift.MAP, 1))
	w.do(p.WriteMapBegin(ctx, thrift.DOUBLE, thrift.STRUCT, 1))
	w.do(p.WriteDouble(ctx, 1.5))
	w.do(withAgent("x").Write(ctx, p))
	w.do(p.WriteMapEnd(ctx))
	w.do(p.WriteSetEnd(ctx))
	w.do(p.WriteListEnd(ctx))
	w.do(p.WriteFieldEnd(ctx))
	w.do(p.WriteFieldBegin(ctx, "y", thrift.BOOL, 99))
	w.do(p.WriteBool(ctx, true))
	w.do(p.WriteFieldEnd(ctx))
	return w.err
}

// FuzzDetect: what has been decided stays decided, and five bytes are enough.
func FuzzDetect(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		decided, was := "", false
		for n := range len(b) + 1 {
			got, framed := thriftrpc.Detect(b[:n], thriftrpc.Limits{})
			if decided != "" && (got != decided || framed != was) || n >= 5 && got == "" {
				t.Fatalf("%q: %q, framed %v, was %q, %v", b[:n], got, framed, decided, was)
			}
			decided, was = got, framed
		}
	})
}

// FuzzSession: pieces make no difference, and what is answered is messages of Thrift.
func FuzzSession(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 500 {
			return // nothing new, and slow in pieces
		}
		s, made := session(small)
		out, rest, end := workAll(s, in)
		var refused interface{ Error() string }
		if end != thriftrpc.ErrShort && !errors.As(end, &refused) || rest > len(in) {
			t.Fatalf("ends with %v and %d left of %d", end, rest, len(in))
		}
		if end == thriftrpc.ErrShort && rest >= 204 {
			t.Fatalf("waits with %d bytes", rest)
		}

		pieces, madeInPieces := session(small)
		var got, held []byte
		var err error
		for i := 0; i < len(in) && (err == nil || err == thriftrpc.ErrShort); i++ {
			held = append(held, in[i])
			var answers []byte
			var left int
			answers, left, err = workAll(pieces, held)
			got = append(got, answers...)
			held = held[len(held)-left:]
		}
		if !bytes.Equal(got, out) || made.made.Load() != madeInPieces.made.Load() {
			t.Fatalf("%q\nat once    %q, %v\nin pieces  %q, %v", in, out, end, got, err)
		}
		wantAnswers(t, in, out)
	})
}

// wantAnswers reads out with the library, as far as it can: not simplejson.
func wantAnswers(t *testing.T, in, out []byte) {
	t.Helper()
	name, framed := thriftrpc.Detect(in, thriftrpc.Limits{MessageBytesMax: 200, StringBytesMax: 60})
	if len(out) == 0 || name == "json" {
		return
	}
	memory := thrift.NewTMemoryBuffer()
	memory.Write(out)
	var transport thrift.TTransport = memory
	if framed {
		transport = thrift.NewTFramedTransportConf(memory, nil)
	}
	p := protocols[name](transport)
	if name == "binary" {
		p = protocols["unversioned"](transport) // reads both
	}
	for i := 0; memory.Len() > 0; i++ {
		_, kind, _, err := p.ReadMessageBegin(background)
		if err != nil || kind != thrift.REPLY && kind != thrift.EXCEPTION {
			t.Fatalf("%q\nanswer %d of %q: type %d, %v", in, i, out, kind, err)
		}
		var r result
		if kind == thrift.REPLY {
			err = r.Read(background, p)
		} else {
			err = thrift.NewTApplicationException(0, "").Read(background, p)
		}
		if err != nil || kind == thrift.REPLY && r.success == nil {
			t.Fatalf("%q\nanswer %d of %q: %+v, %v", in, i, out, r, err)
		}
	}
}

// FuzzRead: what is taken for a call of get_id, the library reads as the same call. It has
// no limits of its own here, and takes less for JSON than JSON is.
func FuzzRead(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		name, framed := thriftrpc.Detect(in, thriftrpc.Limits{})
		if name != "binary" && name != "compact" || framed {
			return
		}
		var agents []string
		s := thriftrpc.NewSession(thriftrpc.Config{
			IDs: &ids{}, Limits: thriftrpc.Limits{PipelineMax: 1},
			Observe: func(_, agent, _ string) { agents = append(agents, agent) },
		})
		used, out, err := s.Work(in, nil)
		if err != nil || len(agents) != 1 || agents[0] == "" || agents[0] == "other" {
			return
		}
		memory := thrift.NewTMemoryBuffer()
		memory.Write(in[:used])
		p := protocols["compact"](memory)
		if name == "binary" {
			p = protocols["unversioned"](memory)
		}
		method, kind, seq, err := p.ReadMessageBegin(background)
		var a arguments
		if err == nil {
			err = a.Read(background, p)
		}
		if err != nil || method != "get_id" || kind != thrift.CALL || a.agent == nil || *a.agent != agents[0] || memory.Len() != 0 {
			t.Fatalf("%q: the library reads %q, type %d, %+v, and leaves %d; %v", in[:used], method, kind, a, memory.Len(), err)
		}
		id := int64(firstID)
		style := protocols[name]
		if in[0] == 0 {
			style = protocols["unversioned"]
		}
		if want := message(t, style, false, "get_id", thrift.REPLY, seq, &result{success: &id}); !bytes.Equal(out, want) {
			t.Fatalf("%q: answered %q, want %q", in, out, want)
		}
	})
}
