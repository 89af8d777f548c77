package sim

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Each field of a message and of an entry, unset, zero and set: the comparison says what proto.Equal says.
func TestSameMessage_ComparesEachFieldAsProtoEqualDoes(t *testing.T) {
	message := func(*raftpb.Entry) *raftpb.Message { return &raftpb.Message{Term: new(uint64(1))} }
	withEntry := func(e *raftpb.Entry) *raftpb.Message { return &raftpb.Message{Entries: []*raftpb.Entry{e}} }
	all := []*raftpb.Message{message(nil), withEntry(&raftpb.Entry{}), {Entries: []*raftpb.Entry{{}, {}}}}
	fields := (&raftpb.Message{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		for _, set := range []bool{false, true} {
			m := message(nil)
			fill(m.ProtoReflect(), fields.Get(i), set)
			all = append(all, m)
		}
	}
	fields = (&raftpb.Entry{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		for _, set := range []bool{false, true} {
			e := &raftpb.Entry{}
			fill(e.ProtoReflect(), fields.Get(i), set)
			all = append(all, withEntry(e))
		}
	}
	unknown := message(nil)
	unknown.ProtoReflect().SetUnknown([]byte{0xf8, 0x01, 1})
	entry := &raftpb.Entry{}
	entry.ProtoReflect().SetUnknown([]byte{0xf8, 0x01, 1})
	all = append(all, unknown, withEntry(entry))
	for i, a := range all {
		for j, b := range all {
			b = proto.Clone(b).(*raftpb.Message)
			if want := proto.Equal(a, b); sameMessage(a, b) != want || i == j && !want {
				t.Errorf("{%v} and {%v}: %v, want %v", a, b, !want, want)
			}
		}
	}
}

// fill sets a field, to another value than zero if set is true.
func fill(m protoreflect.Message, f protoreflect.FieldDescriptor, set bool) {
	v := m.NewField(f)
	switch {
	case f.IsList() && set:
		v.List().AppendMutable()
	case f.Kind() == protoreflect.BytesKind && set:
		v = protoreflect.ValueOfBytes([]byte{1})
	case f.Kind() == protoreflect.BytesKind:
		v = protoreflect.ValueOfBytes([]byte{})
	case f.Kind() == protoreflect.BoolKind:
		v = protoreflect.ValueOfBool(set)
	case f.Kind() == protoreflect.EnumKind && set:
		v = protoreflect.ValueOfEnum(1)
	case f.Kind() == protoreflect.Uint64Kind && set:
		v = protoreflect.ValueOfUint64(7)
	}
	m.Set(f, v)
}
