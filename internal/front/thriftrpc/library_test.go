package thriftrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// arguments are those of all methods: agent is nil where there is none.
type arguments struct {
	agent *string
	extra func(context.Context, thrift.TProtocol) error // writes further fields, before agent
}

func withAgent(s string) arguments { return arguments{agent: &s} }

func (a arguments) Write(ctx context.Context, p thrift.TProtocol) error {
	w := writer{ctx: ctx, p: p}
	w.do(p.WriteStructBegin(ctx, "get_id_args"))
	if a.extra != nil {
		w.do(a.extra(ctx, p))
	}
	if a.agent != nil {
		w.text("useragent", 1, *a.agent)
	}
	w.do(p.WriteFieldStop(ctx))
	w.do(p.WriteStructEnd(ctx))
	return w.err
}

func (a *arguments) Read(ctx context.Context, p thrift.TProtocol) error {
	return readStruct(ctx, p, func(field int16, kind thrift.TType) (bool, error) {
		if field != 1 || kind != thrift.STRING {
			return false, nil
		}
		s, err := p.ReadString(ctx)
		a.agent = &s
		return true, err
	})
}

// result is that of all methods, as code generated from a file without exceptions reads it: it
// skips every field but the number, so an exception that is one of the others is lost.
type result struct {
	success *int64
}

func (r *result) Read(ctx context.Context, p thrift.TProtocol) error {
	return readStruct(ctx, p, func(field int16, kind thrift.TType) (bool, error) {
		if field != 0 || kind != thrift.I64 {
			return false, nil
		}
		v, err := p.ReadI64(ctx)
		r.success = &v
		return true, err
	})
}

func (r *result) Write(ctx context.Context, p thrift.TProtocol) error {
	w := writer{ctx: ctx, p: p}
	w.do(p.WriteStructBegin(ctx, "result"))
	if r.success != nil {
		w.do(p.WriteFieldBegin(ctx, "success", thrift.I64, 0))
		w.do(p.WriteI64(ctx, *r.success))
		w.do(p.WriteFieldEnd(ctx))
	}
	w.do(p.WriteFieldStop(ctx))
	w.do(p.WriteStructEnd(ctx))
	return w.err
}

// writer keeps the first error.
type writer struct {
	ctx context.Context
	p   thrift.TProtocol
	err error
}

func (w *writer) do(err error) { w.err = errors.Join(w.err, err) }

func (w *writer) text(name string, field int16, s string) {
	w.do(w.p.WriteFieldBegin(w.ctx, name, thrift.STRING, field))
	w.do(w.p.WriteString(w.ctx, s))
	w.do(w.p.WriteFieldEnd(w.ctx))
}

// readStruct calls read for each field, and skips those that it does not read.
func readStruct(ctx context.Context, p thrift.TProtocol, read func(int16, thrift.TType) (bool, error)) error {
	if _, err := p.ReadStructBegin(ctx); err != nil {
		return err
	}
	for {
		_, kind, field, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		if kind == thrift.STOP {
			return p.ReadStructEnd(ctx)
		}
		known, err := read(field, kind)
		if err == nil && !known {
			err = p.Skip(ctx, kind)
		}
		if err != nil {
			return err
		}
		if err := p.ReadFieldEnd(ctx); err != nil {
			return err
		}
	}
}

// binaryProtocol writes, and insists on, the version or does neither.
func binaryProtocol(version bool) func(thrift.TTransport) thrift.TProtocol {
	return func(t thrift.TTransport) thrift.TProtocol {
		return thrift.NewTBinaryProtocolConf(t, &thrift.TConfiguration{TBinaryStrictRead: &version, TBinaryStrictWrite: &version})
	}
}

// protocols are those of the library that can read what they write.
var protocols = map[string]func(thrift.TTransport) thrift.TProtocol{
	"binary":      binaryProtocol(true),
	"unversioned": binaryProtocol(false),
	"compact":     func(t thrift.TTransport) thrift.TProtocol { return thrift.NewTCompactProtocolConf(t, nil) },
	"json":        func(t thrift.TTransport) thrift.TProtocol { return thrift.NewTJSONProtocol(t) },
}

func simpleJSON(t thrift.TTransport) thrift.TProtocol {
	return simple{thrift.NewTSimpleJSONProtocolConf(t, nil)}
}

// simple flushes the transport too, which the library leaves out.
type simple struct{ *thrift.TSimpleJSONProtocol }

func (s simple) Flush(ctx context.Context) error {
	return errors.Join(s.TSimpleJSONProtocol.Flush(ctx), s.Transport().Flush(ctx))
}

// eachTransport runs a test over buffered and framed, in the clear and under TLS.
func eachTransport(t *testing.T, s *site, test func(t *testing.T, transport thrift.TTransport)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		for _, framed := range []bool{false, true} {
			t.Run(fmt.Sprintf("tls=%v,framed=%v", secure, framed), func(t *testing.T) {
				conf := &thrift.TConfiguration{ConnectTimeout: patience, SocketTimeout: patience, TLSConfig: trust(t)}
				var transport thrift.TTransport = thrift.NewTSocketConf(s.addr, conf)
				if secure {
					transport = thrift.NewTSSLSocketConf(s.addr, conf)
				}
				if framed {
					transport = thrift.NewTFramedTransportConf(transport, conf)
				} else {
					transport = thrift.NewTBufferedTransport(transport, 4096)
				}
				if err := transport.Open(); err != nil {
					t.Fatal(err)
				}
				defer transport.Close()
				test(t, transport)
			})
		}
	}
}

// callOf asks one method by a client of the library.
func callOf(c thrift.TClient, method string, a arguments) (result, error) {
	var r result
	_, err := c.Call(context.Background(), method, &a, &r)
	return r, err
}

func TestLibrary_ClientsOfAllProtocols(t *testing.T) {
	s := start(t)
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, s, func(t *testing.T, transport thrift.TTransport) {
				p := protocol(transport)
				wantService(t, s, thrift.NewTStandardClient(p, p))
			})
		})
	}
}

// wantService checks all that a client can see, twice over one connection.
func wantService(t *testing.T, s *site, c thrift.TClient) {
	t.Helper()
	defer s.ids.fail(nil)
	var last int64
	for range 2 {
		for method, want := range map[string]int64{"get_worker_id": worker, "get_datacenter_id": datacenter, "get_timestamp": nowMillis} {
			r, err := callOf(c, method, arguments{})
			if err != nil || r.success == nil || *r.success != want {
				t.Errorf("%s: %+v, %v, want %d", method, r, err, want)
			}
		}
		for range 10 {
			wantID(t, c, &last, withAgent("library-test"))
		}
		for _, agent := range []string{"", "7up", "a b", "über", "-a", "my_app", "a\x00", strings.Repeat("x", 4096), "a\"<\\é\U0001f600"} {
			wantID(t, c, &last, withAgent(agent))
		}
		wantID(t, c, &last, arguments{})
		s.ids.fail(&snowflake.InvalidSystemClock{Fault: snowflake.ClockBehind, Now: 5, Bound: 7000})
		for _, method := range []string{"get_id", "get_worker_id", "get_datacenter_id"} {
			_, err := callOf(c, method, withAgent("library-test"))
			wantFault(t, err, thrift.INTERNAL_ERROR, "clock: the clock went back: it is at 5 ms, 6995 ms behind the last ID")
		}
		s.ids.fail(snowflake.ErrExhausted)
		_, err := callOf(c, "get_id", withAgent("library-test"))
		wantFault(t, err, thrift.INTERNAL_ERROR, "overloaded: the IDs of this worker are used up for now")
		s.ids.fail(errors.New("it burns"))
		_, err = callOf(c, "get_worker_id", arguments{})
		wantFault(t, err, thrift.INTERNAL_ERROR, "internal: it burns")
		s.ids.fail(isotone.ErrNoLeader)
		_, err = callOf(c, "get_datacenter_id", arguments{})
		wantFault(t, err, thrift.INTERNAL_ERROR, "no_leader: no leader is known")
		s.ids.fail(nil)
		_, err = callOf(c, "get_ids", arguments{extra: allTypes})
		wantFault(t, err, thrift.UNKNOWN_METHOD, `there is no method "get_ids"`)
	}
}

// wantID checks that the next ID is above *last.
func wantID(t *testing.T, c thrift.TClient, last *int64, a arguments) {
	t.Helper()
	r, err := callOf(c, "get_id", a)
	if err != nil || r.success == nil || *r.success <= *last {
		t.Fatalf("get_id: %+v, %v after %d", r, err, *last)
	}
	*last = *r.success
}

func wantFault(t *testing.T, err error, kind int32, message string) {
	t.Helper()
	var e thrift.TApplicationException
	if !errors.As(err, &e) || e.TypeId() != kind || e.Error() != message {
		t.Errorf("got %v, want exception %d %q", err, kind, message)
	}
}

// allTypes writes a field of each type.
func allTypes(ctx context.Context, p thrift.TProtocol) error {
	w := writer{ctx: ctx, p: p}
	field := int16(1)
	add := func(kind thrift.TType, write func()) {
		if field += 3; field == 19 {
			field = 300 // far, so that the compact protocol writes it in full
		}
		w.do(p.WriteFieldBegin(ctx, fmt.Sprintf("f%d", field), kind, field))
		write()
		w.do(p.WriteFieldEnd(ctx))
	}
	add(thrift.BOOL, func() { w.do(p.WriteBool(ctx, true)) })
	add(thrift.BOOL, func() { w.do(p.WriteBool(ctx, false)) })
	add(thrift.BYTE, func() { w.do(p.WriteByte(ctx, -128)) })
	add(thrift.I16, func() { w.do(p.WriteI16(ctx, -32768)) })
	add(thrift.I32, func() { w.do(p.WriteI32(ctx, -1<<31)) })
	add(thrift.I64, func() { w.do(p.WriteI64(ctx, -1<<63)) })
	add(thrift.DOUBLE, func() { w.do(p.WriteDouble(ctx, -1.5e300)) })
	add(thrift.STRING, func() { w.do(p.WriteString(ctx, "a\"}],\\é\x01")) })
	add(thrift.STRING, func() { w.do(p.WriteBinary(ctx, []byte{0, 255, 34})) })
	add(thrift.UUID, func() { w.do(p.WriteUUID(ctx, thrift.Tuuid{1, 2})) })
	add(thrift.STRUCT, func() { w.do(withAgent("inner").Write(ctx, p)) })
	for _, size := range []int{0, 1, 14, 15, 300} {
		add(thrift.LIST, func() {
			w.do(p.WriteListBegin(ctx, thrift.BOOL, size))
			for i := range size {
				w.do(p.WriteBool(ctx, i%2 == 0))
			}
			w.do(p.WriteListEnd(ctx))
		})
		add(thrift.SET, func() {
			w.do(p.WriteSetBegin(ctx, thrift.STRING, size))
			for range size {
				w.do(p.WriteString(ctx, "x"))
			}
			w.do(p.WriteSetEnd(ctx))
		})
		add(thrift.MAP, func() {
			w.do(p.WriteMapBegin(ctx, thrift.I64, thrift.STRUCT, size))
			for i := range size {
				w.do(p.WriteI64(ctx, int64(i)))
				w.do(arguments{}.Write(ctx, p))
			}
			w.do(p.WriteMapEnd(ctx))
		})
	}
	return w.err
}

func TestLibrary_UnknownFieldsAreSkipped(t *testing.T) {
	s := start(t)
	agent := "skipper"
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, s, func(t *testing.T, transport thrift.TTransport) {
				p := protocol(transport)
				c := thrift.NewTStandardClient(p, p)
				for range 2 {
					r, err := callOf(c, "get_id", arguments{agent: &agent, extra: allTypes})
					if err != nil || r.success == nil {
						t.Errorf("%+v, %v", r, err)
					}
				}
				// Field 1 is there, and is no string.
				r, err := callOf(c, "get_id", arguments{extra: func(ctx context.Context, p thrift.TProtocol) error {
					return errors.Join(p.WriteFieldBegin(ctx, "useragent", thrift.I64, 1), p.WriteI64(ctx, 5), p.WriteFieldEnd(ctx))
				}})
				if err != nil || r.success == nil {
					t.Errorf("a number for a user agent: %+v, %v", r, err)
				}
			})
		})
	}
	if n := s.seen.of("get_id", "skipper", "ok"); n != 2*4*len(protocols) {
		t.Errorf("the user agent was read %d times", n)
	}
}

// writeText writes strings as fields that nobody knows.
func writeText(texts ...string) func(context.Context, thrift.TProtocol) error {
	return func(ctx context.Context, p thrift.TProtocol) error {
		w := writer{ctx: ctx, p: p}
		for i, s := range texts {
			w.text("x", int16(2+i), s)
		}
		return w.err
	}
}
