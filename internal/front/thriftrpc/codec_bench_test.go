package thriftrpc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/isotone/isotone/internal/front/thriftrpc"
)

// These benchmarks compare the codecs of this package with those of the Thrift library:
// docs/decisions/0014-thrift-codecs.md.

// bounded are limits of the library like those of this package.
var bounded = &thrift.TConfiguration{MaxMessageSize: 16 << 10, MaxFrameSize: 16 << 10, MaxContainerSize: 4 << 10}

var libraryCodecs = []struct {
	name string
	make func(thrift.TTransport) thrift.TProtocol
}{
	{"binary", func(t thrift.TTransport) thrift.TProtocol { return thrift.NewTBinaryProtocolConf(t, bounded) }},
	{"compact", func(t thrift.TTransport) thrift.TProtocol { return thrift.NewTCompactProtocolConf(t, bounded) }},
	{"json", func(t thrift.TTransport) thrift.TProtocol {
		p := thrift.NewTJSONProtocol(t)
		p.SetTConfiguration(bounded)
		return p
	}},
}

// serveByLibrary reads one call from p and answers it, as generated code does.
func serveByLibrary(p thrift.TProtocol, ids *ids) error {
	method, _, seq, err := p.ReadMessageBegin(background)
	if err != nil {
		return err
	}
	var a arguments
	if err := a.Read(background, p); err != nil {
		return err
	}
	if err := p.ReadMessageEnd(background); err != nil {
		return err
	}
	id, err := ids.NextID()
	if err != nil {
		return err
	}
	value := int64(id)
	return errors.Join(
		p.WriteMessageBegin(background, method, thrift.REPLY, seq),
		(&result{success: &value}).Write(background, p),
		p.WriteMessageEnd(background),
		p.Flush(background))
}

// BenchmarkCodec reads one call of get_id and writes its answer, in memory.
func BenchmarkCodec(b *testing.B) {
	for _, codec := range libraryCodecs {
		for _, framed := range []bool{false, true} {
			in := message(b, codec.make, framed, "get_id", thrift.CALL, 7, withAgent("isotone-bench"))
			transport := map[bool]string{false: "buffered", true: "framed"}[framed]
			b.Run(codec.name+"/"+transport+"/ours", func(b *testing.B) {
				s, _ := session()
				out := make([]byte, 0, 4096)
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := s.Work(in, out[:0]); err != thriftrpc.ErrShort {
						b.Fatal(err)
					}
				}
			})
			b.Run(codec.name+"/"+transport+"/library", func(b *testing.B) {
				memory := thrift.NewTMemoryBuffer()
				var over thrift.TTransport = memory
				if framed {
					over = thrift.NewTFramedTransportConf(memory, bounded)
				}
				p, ids := codec.make(over), &ids{}
				b.ReportAllocs()
				for b.Loop() {
					memory.Reset()
					memory.Write(in)
					if err := serveByLibrary(p, ids); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// badInputs begin like a call of get_id.
func badInputs(codec string) map[string][]byte {
	head := map[string]string{
		"binary":  "\x80\x01\x00\x01\x00\x00\x00\x06get_id\x00\x00\x00\x07",
		"compact": "\x82\x21\x07\x06get_id",
		"json":    `[1,"get_id",1,7,`,
	}[codec]
	of := func(parts ...string) []byte { return []byte(head + strings.Join(parts, "")) }
	many := func(s string) string { return strings.Repeat(s, 5000) }
	huge := string(binary.BigEndian.AppendUint32(nil, 1<<31-1))
	switch codec {
	case "binary":
		return map[string][]byte{
			"string of 2 GiB": of("\x0b\x00\x01", huge), "list of 2 Gi": of("\x0f\x00\x02\x08", huge), "map of 2 Gi": of("\x0d\x00\x02\x02\x02", huge),
			"5000 lists": of("\x0f\x00\x02", many("\x0f\x00\x00\x00\x01")), "5000 structs": of(many("\x0c\x00\x02")),
			"cut off": of("\x0b\x00\x01\x00\x00"), "name of 2 GiB": []byte("\x80\x01\x00\x01" + huge),
		}
	case "compact":
		huge = "\xff\xff\xff\xff\x07"
		return map[string][]byte{
			"string of 2 GiB": of("\x18", huge), "list of 2 Gi": of("\x29\xf3", huge), "map of 2 Gi": of("\x2b", huge, "\x33"),
			"5000 lists": of("\x29", many("\x19")), "5000 structs": of(many("\x1c")),
			"cut off": of("\x18\x05a"), "name of 2 GiB": []byte("\x82\x21\x07" + huge),
		}
	}
	return map[string][]byte{
		"string of 1 MiB": of(`{"1":{"str":"`, strings.Repeat("a", 1<<20)), "list of 2 Gi": of(`{"2":{"lst":["i32",2147483647`),
		"map of 2 Gi": of(`{"2":{"map":["i32","i32",2147483647,{`),
		"5000 lists":  of(`{"2":{"lst":`, many(`["lst",1,`)), "5000 structs": of(many(`{"2":{"rec":`)),
		"cut off": of(`{"1":{"str":"a`), "number of 1 MiB": of(`{"2":{"i32":`, strings.Repeat("1", 1<<20)),
	}
}

// BenchmarkBadInput shows what broken and hostile calls cost.
func BenchmarkBadInput(b *testing.B) {
	for _, codec := range libraryCodecs {
		for name, in := range badInputs(codec.name) {
			b.Run(codec.name+"/"+strings.ReplaceAll(name, " ", "-")+"/ours", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s, _ := session()
					if _, out, err := s.Work(in, nil); err == nil || bytes.Contains(out, []byte("success")) {
						b.Fatalf("%q, %v", out, err)
					}
				}
			})
			b.Run(codec.name+"/"+strings.ReplaceAll(name, " ", "-")+"/library", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					memory := &thrift.TMemoryBuffer{Buffer: bytes.NewBuffer(in)}
					if err := serveByLibrary(codec.make(memory), &ids{}); err == nil {
						b.Fatal("no error")
					}
				}
			})
		}
	}
}
