package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"testing"

	"github.com/bufbuild/protocompile"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

var update = flag.Bool("update", false, "write the descriptors of the server anew")

// descriptors is what the server has embedded for reflection.
const descriptors = "../../internal/front/grpc/descriptors.binpb"

const schema = "isotone/v1/isotone.proto"

// others are the files of other projects that the server's reflection has.
var others = []string{
	"google/rpc/error_details.proto", "grpc/health/v1/health.proto",
	"grpc/reflection/v1/reflection.proto", "grpc/reflection/v1alpha/reflection.proto",
}

// compile returns isotone.proto as it is in this repository.
func compile(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../../proto"}})}
	files, err := c.Compile(context.Background(), schema)
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

// add appends f to a set, after what it imports.
func add(set *descriptorpb.FileDescriptorSet, f protoreflect.FileDescriptor) {
	for _, has := range set.File {
		if has.GetName() == f.Path() {
			return
		}
	}
	for i := range f.Imports().Len() {
		add(set, f.Imports().Get(i).FileDescriptor)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
}

// TestDescriptors_AreThoseOfTheSchema: the server's reflection says what proto/isotone/v1/isotone.proto does.
func TestDescriptors_AreThoseOfTheSchema(t *testing.T) {
	var set descriptorpb.FileDescriptorSet
	add(&set, compile(t))
	for _, path := range others {
		f, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			t.Fatal(err)
		}
		add(&set, f)
	}
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(descriptors, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(descriptors); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not that of the schema (%v); run this test with -update", descriptors, err)
	}
}

// TestStubs_AreThoseOfTheSchema: the Go code in proto was generated from the schema as it is.
func TestStubs_AreThoseOfTheSchema(t *testing.T) {
	want, got := protodesc.ToFileDescriptorProto(compile(t)), protodesc.ToFileDescriptorProto(isotonev1.File_isotone_v1_isotone_proto)
	if !proto.Equal(want, got) {
		t.Error("proto/isotone/v1/isotone.pb.go is not that of the schema; run buf generate in proto")
	}
}
