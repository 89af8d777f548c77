package grpc

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// blank returns an empty message as google.golang.org/protobuf has it.
func blank(t testing.TB, name string) *dynamicpb.Message {
	t.Helper()
	d, err := files().FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
}

// parsed returns what google.golang.org/protobuf reads in b.
func parsed(t testing.TB, name string, b []byte) *dynamicpb.Message {
	t.Helper()
	m := blank(t, name)
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatalf("%s %x: %v", name, b, err)
	}
	if len(m.GetUnknown()) > 0 {
		t.Errorf("%s has unknown fields: %x", name, m.GetUnknown())
	}
	return m
}

// field of m by its name.
func of(m protoreflect.Message, name string) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func has(m protoreflect.Message, name string) bool {
	return m.Has(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

var stamp = isotone.Timestamp{Time: 1<<63 + 12345, Index: math.MaxUint64 - 7}

func TestAppendRange_IsTheMessage(t *testing.T) {
	for _, count := range []uint64{1, 65536, isotone.RangeCountMax} {
		b := AppendRange(nil, isotone.Range{First: stamp, Count: count}, false)
		if len(b) > 26 {
			t.Errorf("%d timestamps have %d bytes", count, len(b))
		}
		m := parsed(t, "isotone.v1.TimestampsGetResponse", b)
		first, err := parseTimestamp("wide", of(m, "wide").Bytes())
		if err != nil || first != stamp || of(m, "count").Uint() != count || has(m, "u64") {
			t.Errorf("%v, %v, %v", first, m, err)
		}
	}
	first := isotone.NewTimestamp64(1795317567364, 77)
	m := parsed(t, "isotone.v1.TimestampsGetResponse", AppendRange(nil, isotone.Range{First: first.Timestamp(), Count: 3}, true))
	if of(m, "u64").Uint() != uint64(first) || of(m, "count").Uint() != 3 || has(m, "wide") {
		t.Errorf("%v", m)
	}
}

func TestAppend_TheOtherAnswersAreTheirMessages(t *testing.T) {
	m := parsed(t, "isotone.v1.IdsGetResponse", AppendIDs(nil, []snowflake.ID{5, 1 << 62}))
	if ids := of(m, "ids").List(); ids.Len() != 2 || ids.Get(0).Int() != 5 || ids.Get(1).Int() != 1<<62 {
		t.Errorf("%v", m)
	}
	r := interval.Reading{Cluster: 0xfedcba9876543210, Term: 9, Earliest: 1 << 60, Latest: 1<<60 + 1, Limit: 1<<60 + 2}
	m = parsed(t, "isotone.v1.IntervalGetResponse", appendReading(nil, r, 42))
	got := interval.Reading{
		Cluster: of(m, "cluster").Uint(), Term: of(m, "term").Uint(),
		Earliest: of(m, "earliest").Uint(), Latest: of(m, "latest").Uint(), Limit: of(m, "limit").Uint(),
	}
	if got != r || of(m, "nonce").Uint() != 42 {
		t.Errorf("%v", m)
	}
	m = parsed(t, "isotone.v1.IntervalStampResponse", appendStamps(nil, front.Stamps{First: stamp, Count: 4}))
	if first, err := parseTimestamp("first", of(m, "first").Bytes()); err != nil || first != stamp || of(m, "count").Uint() != 4 {
		t.Errorf("%v", m)
	}
	m = parsed(t, "isotone.v1.TimestampsStreamResponse", appendStreamed(nil, 8, resultGot, AppendRange(nil, isotone.Range{First: stamp, Count: 2}, false)))
	if of(m, "id").Uint() != 8 || of(of(m, "got").Message(), "count").Uint() != 2 {
		t.Errorf("%v", m)
	}
	s := StatusOf(isotone.ErrRegressed)
	m = parsed(t, "isotone.v1.TimestampsStreamResponse", appendStreamed(nil, 0, resultError, s.details))
	if of(of(m, "error").Message(), "code").Int() != codeFailedPrecondition {
		t.Errorf("%v", m)
	}
}

// request makes a TimestampsGetRequest of numbers by the name of the field.
func request(t testing.TB, wideFloor []byte, numbers map[string]uint64) []byte {
	t.Helper()
	m := blank(t, "isotone.v1.TimestampsGetRequest")
	fields := m.Descriptor().Fields()
	for name, n := range numbers {
		f, v := fields.ByName(protoreflect.Name(name)), protoreflect.ValueOfUint64(n)
		if f.Kind() == protoreflect.EnumKind {
			v = protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
		}
		m.Set(f, v)
	}
	if wideFloor != nil {
		m.Set(fields.ByName("wide_floor"), protoreflect.ValueOfBytes(wideFloor))
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseAsk_HasTheLimitsOfOtherProtocols(t *testing.T) {
	wide, _ := stamp.AppendBinary(nil)
	small := isotone.NewTimestamp64(1795317567364, 5)
	for _, test := range []struct {
		floor   []byte
		numbers map[string]uint64
		want    Ask
		refused string
	}{
		{nil, nil, Ask{Count: 1}, ""},
		{nil, map[string]uint64{"count": 0}, Ask{}, "count 0: want a number from 1 to 4294967296"},
		{nil, map[string]uint64{"count": isotone.RangeCountMax}, Ask{Count: isotone.RangeCountMax}, ""},
		{nil, map[string]uint64{"count": isotone.RangeCountMax + 1}, Ask{}, "count 4294967297"},
		{nil, map[string]uint64{"count": isotone.Range64CountMax, "form": formU64}, Ask{Count: isotone.Range64CountMax, U64: true}, ""},
		{nil, map[string]uint64{"count": isotone.Range64CountMax + 1, "form": formU64}, Ask{}, "want a number from 1 to 262144"},
		{nil, map[string]uint64{"form": 2}, Ask{}, "form 2"},
		{nil, map[string]uint64{"mode": modeQuorum}, Ask{Count: 1, Mode: isotone.ReadQuorum}, ""},
		{nil, map[string]uint64{"mode": modeLease}, Ask{Count: 1, Mode: isotone.ReadLease}, ""},
		{nil, map[string]uint64{"mode": 3}, Ask{}, "mode 3"},
		{wide, nil, Ask{Count: 1, Floor: stamp}, ""},
		{wide[1:], nil, Ask{}, "wide_floor has 15 bytes"},
		{nil, map[string]uint64{"u64_floor": uint64(small)}, Ask{Count: 1, Floor: small.Timestamp()}, ""},
	} {
		got, err := ParseAsk(request(t, test.floor, test.numbers))
		switch {
		case test.refused == "" && (err != nil || got != test.want):
			t.Errorf("%v: %+v, %v; want %+v", test.numbers, got, err, test.want)
		case test.refused != "" && (!errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%v: %v, want %q", test.numbers, err, test.refused)
		}
	}
}

// named returns a request with a timeline.
func named(b []byte, timeline string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, 6, protowire.BytesType), timeline)
}

func TestParseAsk_ATimelineHasAName(t *testing.T) {
	whole := request(t, nil, map[string]uint64{"count": 7, "form": formU64, "mode": modeLease, "u64_floor": 1 << 40})
	for name, refused := range map[string]string{
		"a": "", "A-Z.a_z/0-9": "", strings.Repeat("x", 64): "",
		"":                       "timeline: a name of 0 bytes: want 1 to 64",
		strings.Repeat("x", 65):  "timeline: a name of 65 bytes",
		strings.Repeat("x", 999): "timeline: a name of 999 bytes",
		"a b":                    `timeline: "a b": a name has letters`,
		"größer":                 "a name has letters",
		"a\x00":                  "a name has letters",
		"\xff":                   "not valid protobuf",
	} {
		got, err := ParseAsk(named(whole, name))
		want := Ask{Count: 7, U64: true, Mode: isotone.ReadLease, Floor: isotone.Timestamp64(1 << 40).Timestamp(), Timeline: name}
		switch {
		case refused == "" && (err != nil || got != want):
			t.Errorf("%q: %+v, %v; want %+v", name, got, err, want)
		case refused != "" && (!errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), refused)):
			t.Errorf("%q: %v, want %q", name, err, refused)
		}
	}
	if got, err := ParseAsk(named(named(nil, "a"), "b")); err != nil || got.Timeline != "b" { // as in protobuf
		t.Errorf("two names: %+v, %v", got, err)
	}
	if got, err := ParseAsk([]byte{0x30, 0x01}); err != nil || got != (Ask{Count: 1}) {
		t.Errorf("a field of another wire type: %+v, %v", got, err)
	}
}

// FuzzParseAsk: each message is read as google.golang.org/protobuf reads it, by itself and within a request of a stream.
func FuzzParseAsk(f *testing.F) {
	wide, _ := stamp.AppendBinary(nil)
	f.Add([]byte{})
	f.Add(request(f, wide, map[string]uint64{"count": 7, "mode": modeLease}))
	f.Add(request(f, nil, map[string]uint64{"count": 7, "form": formU64, "u64_floor": 1 << 40}))
	f.Add(named(request(f, wide, map[string]uint64{"count": 7}), "orders"))
	f.Add(named(nil, ""))
	f.Add(named(nil, "\xff"))
	f.Add([]byte{0x08, 0x80})                                          // cut off
	f.Add([]byte("\xe8\x98\xf2\x9100"))                                // a number that no field has
	f.Add([]byte{0x0b, 0x08, 0x01, 0x0c, 0x08, 0x05})                  // a group
	f.Add([]byte{0x0a, 0x01, 0x01, 0x10, 0xff, 0x01})                  // the wrong wire type
	f.Add(append(request(f, wide, nil), 0x29, 1, 0, 0, 0, 0, 0, 0, 0)) // the other floor after it
	f.Fuzz(func(t *testing.T, b []byte) {
		var got timestampsRequest
		ours := got.parse(b)
		m := blank(t, "isotone.v1.TimestampsGetRequest")
		theirs := proto.Unmarshal(b, m)
		if (ours == nil) != (theirs == nil) {
			t.Fatalf("%x: %v, want %v", b, ours, theirs)
		}
		if ours != nil {
			return
		}
		same(t, &got, m)
		framed := protowire.AppendBytes([]byte{0x08, 0x05, 0x12}, b)
		id, again, err := parseStreamed(append(framed, 0x12, 0))
		if err != nil || id != 5 {
			t.Fatalf("%d, %v", id, err)
		}
		same(t, &again, m)
	})
}

func same(t *testing.T, got *timestampsRequest, m *dynamicpb.Message) {
	t.Helper()
	floor := protowire.Number(0)
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("floor")); f != nil {
		floor = f.Number()
	}
	if got.count != (count{of(m, "count").Uint(), has(m, "count")}) || got.mode != int32(of(m, "mode").Enum()) || got.form != int32(of(m, "form").Enum()) ||
		(got.timeline != nil) != has(m, "timeline") || string(got.timeline) != of(m, "timeline").String() ||
		got.floor != floor || string(got.wideFloor) != string(of(m, "wide_floor").Bytes()) || got.u64Floor != of(m, "u64_floor").Uint() {
		t.Fatalf("%+v, want %v", got, m)
	}
}

// FuzzParse_Others: the other requests are read as google.golang.org/protobuf reads them.
func FuzzParse_Others(f *testing.F) {
	f.Add([]byte{0x08, 0x05})
	f.Add([]byte{0x09, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(append([]byte{0x0a, 0x10}, make([]byte, 16)...))
	f.Add([]byte{0x0a, 0x02, 0xff, 0xfe})
	f.Add([]byte{0x22, 0x01, 'x', 0x3a, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, parse := range map[string]func(m protoreflect.Message) (ours, want any, err error){
			"isotone.v1.IdsGetRequest": func(m protoreflect.Message) (any, any, error) {
				c, err := parseCount(b)
				return c, count{of(m, "count").Uint(), has(m, "count")}, err
			},
			"isotone.v1.IntervalGetRequest": func(m protoreflect.Message) (any, any, error) {
				nonce, err := parseNonce(b)
				return nonce, of(m, "nonce").Uint(), err
			},
			"isotone.v1.IntervalWaitRequest": func(m protoreflect.Message) (any, any, error) {
				got, err := parseWait(b)
				want := of(m, "timestamp").Bytes()
				if len(want) != isotone.TimestampSize {
					if !errors.Is(err, isotone.ErrInvalidArgument) {
						t.Errorf("a timestamp of %d bytes: %v", len(want), err)
					}
					return nil, nil, nil
				}
				return got, isotone.Timestamp{Time: binary.BigEndian.Uint64(want), Index: binary.BigEndian.Uint64(want[8:])}, err
			},
			"grpc.health.v1.HealthCheckRequest": func(m protoreflect.Message) (any, any, error) {
				service, err := parseText(b)
				return service, of(m, "service").String(), err
			},
		} {
			m := blank(t, name)
			theirs := proto.Unmarshal(b, m)
			ours, want, err := parse(m)
			if theirs == nil && (err != nil || ours != want) || theirs != nil && name != "isotone.v1.IntervalWaitRequest" && err == nil {
				t.Errorf("%s %x: %v, %v; want %v, %v", name, b, ours, err, want, theirs)
			}
		}
	})
}

func TestReflection_AnswersAreTheirMessages(t *testing.T) {
	m := parsed(t, "grpc.reflection.v1.ServerReflectionResponse", appendReflection(nil, askServices, ""))
	services := of(of(m, "list_services_response").Message(), "service").List()
	var names []string
	for i := range services.Len() {
		names = append(names, of(services.Get(i).Message(), "name").String())
	}
	for _, want := range []string{"isotone.v1.Timestamps", "isotone.v1.Ids", "isotone.v1.Interval", "grpc.health.v1.Health"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("%s is not in %v", want, names)
		}
	}
	for asked, text := range map[protowire.Number]string{askFile: "isotone/v1/isotone.proto", askSymbol: "isotone.v1.Ids.Get"} {
		m = parsed(t, "grpc.reflection.v1.ServerReflectionResponse", appendReflection(nil, asked, text))
		file := of(of(m, "file_descriptor_response").Message(), "file_descriptor_proto").List()
		if file.Len() != 1 || !strings.Contains(string(file.Get(0).Bytes()), "isotone/v1/isotone.proto") {
			t.Errorf("%s: %v", text, m)
		}
	}
	for _, asked := range []protowire.Number{askFile, askSymbol, askExtension, askExtensions} {
		m = parsed(t, "grpc.reflection.v1.ServerReflectionResponse", appendReflection(nil, asked, "no.such.Thing"))
		if of(of(m, "error_response").Message(), "error_code").Int() != codeNotFound {
			t.Errorf("%d: %v", asked, m)
		}
	}
}

func TestMessages_OfTimestampsDoNotAllocate(t *testing.T) {
	wide, _ := stamp.AppendBinary(nil)
	asked, b := request(t, wide, map[string]uint64{"count": 7, "mode": modeLease}), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		a, err := ParseAsk(asked)
		if err != nil {
			t.Fatal(err)
		}
		b = EndFrame(AppendRange(BeginFrame(b[:0]), isotone.Range{First: stamp, Count: a.Count}, a.U64), 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMessages(b *testing.B) {
	asked, out := request(b, nil, map[string]uint64{"count": 7}), make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		a, _ := ParseAsk(asked)
		out = EndFrame(AppendRange(BeginFrame(out[:0]), isotone.Range{First: stamp, Count: a.Count}, a.U64), 0)
	}
}
