package grpc

import (
	"context"
	_ "embed"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/isotone/isotone"
)

// descriptors is a FileDescriptorSet of all services, and of the messages in errors. interop/grpc makes it from proto.
//
//go:embed descriptors.binpb
var descriptors []byte

// files has what is in descriptors.
var files = sync.OnceValue(func() *protoregistry.Files {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(descriptors, &set); err != nil {
		panic("grpc: descriptors.binpb: " + err.Error())
	}
	all, err := protodesc.NewFiles(&set)
	if err != nil {
		panic("grpc: descriptors.binpb: " + err.Error())
	}
	return all
})

// reflectionIdle bounds the wait for the next request of a stream.
const reflectionIdle = time.Minute

var errIdle = isotone.Errorf(isotone.CodeDeadlineExceeded, "no request came within %v", reflectionIdle)

// The fields of grpc.reflection.v1.ServerReflectionRequest, and of its answer.
const (
	askFile         = 3
	askSymbol       = 4
	askExtension    = 5
	askExtensions   = 6
	askServices     = 7
	answerOriginal  = 2
	answerFile      = 4
	answerServices  = 6
	answerError     = 7
	reflectionTexts = 1<<askFile | 1<<askSymbol | 1<<askExtensions | 1<<askServices
)

// reflect is ServerReflection.ServerReflectionInfo, of both versions.
func (c *call) reflect() error {
	reading, stop := context.WithCancelCause(c.ctx)
	defer stop(nil)
	defer c.interrupt(reading)()
	idle := time.NewTimer(reflectionIdle)
	defer idle.Stop()
	go func() {
		select {
		case <-idle.C:
			stop(errIdle)
		case <-c.server.cfg.Stopping:
			stop(errLeaving)
		case <-reading.Done():
		}
	}()
	for {
		request, err := c.in.next()
		if ended := context.Cause(reading); ended != nil {
			return endOf(ended)
		}
		if err == io.EOF {
			return c.send(nil)
		}
		if err != nil {
			return err
		}
		asked, text, err := parseReflection(request)
		if err != nil {
			return err
		}
		b := AppendText(BeginFrame(nil), answerOriginal, request)
		if err := c.send(EndFrame(appendReflection(b, asked, text), 0)); err != nil {
			return err
		}
		idle.Reset(reflectionIdle)
	}
}

// parseReflection returns the field of a request that says what is asked for, 0 if there is none, and its text.
func parseReflection(b []byte) (asked protowire.Number, text string, err error) {
	err = EachField(b, func(f Field) error {
		if f.kind != protowire.BytesType || f.number < askFile || f.number > askServices {
			return nil
		}
		if reflectionTexts>>f.number&1 != 0 && !utf8.Valid(f.Bytes) {
			return errMalformed
		}
		asked, text = f.number, string(f.Bytes)
		return nil
	})
	return asked, text, err
}

// appendReflection appends what is asked for, or that it is not found. There are no extensions.
func appendReflection(b []byte, asked protowire.Number, text string) []byte {
	var found protoreflect.FileDescriptor
	switch asked {
	case askServices:
		return AppendText(b, answerServices, appendServices(nil))
	case askFile:
		found, _ = files().FindFileByPath(text)
	case askSymbol:
		if d, err := files().FindDescriptorByName(protoreflect.FullName(text)); err == nil {
			found = d.ParentFile()
		}
	}
	if found == nil {
		failure := AppendText(AppendVarint(nil, 1, codeNotFound), 2, "there is no such file, symbol or extension")
		return AppendText(b, answerError, failure)
	}
	file, err := proto.Marshal(protodesc.ToFileDescriptorProto(found))
	if err != nil {
		panic("grpc: a descriptor does not encode: " + err.Error())
	}
	return AppendText(b, answerFile, AppendText(nil, 1, file))
}

// appendServices appends the names of all services.
func appendServices(b []byte) []byte {
	files().RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			b = AppendText(b, 1, AppendText(nil, 1, string(f.Services().Get(i).FullName())))
		}
		return true
	})
	return b
}

// interrupt has reads fail once ctx ends, until the caller calls what it returns.
func (c *call) interrupt(ctx context.Context) (release func()) {
	_ = c.control.SetReadDeadline(time.Time{})
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = c.control.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-interrupted
		}
	}
}
