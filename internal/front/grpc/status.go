package grpc

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// The codes of gRPC (google.rpc.Code) that are in use.
const (
	codeOK                 = 0
	codeInvalidArgument    = 3
	codeDeadlineExceeded   = 4
	codeNotFound           = 5
	codePermissionDenied   = 7
	codeResourceExhausted  = 8
	codeFailedPrecondition = 9
	codeAborted            = 10
	codeUnimplemented      = 12
	codeInternal           = 13
	codeUnavailable        = 14
	codeUnauthenticated    = 16
)

// codeOf returns the code of gRPC for a code of Isotone.
func codeOf(code isotone.Code) uint64 {
	switch code {
	case isotone.CodeInvalidArgument:
		return codeInvalidArgument
	case isotone.CodeUnauthorized:
		return codeUnauthenticated
	case isotone.CodeForbidden:
		return codePermissionDenied
	case isotone.CodeNotFound:
		return codeUnimplemented // no such method here, or nothing that it could answer with
	case isotone.CodeNotLeader, isotone.CodeNoLeader, isotone.CodeNoQuorum, isotone.CodeClock, isotone.CodeNoWorker:
		return codeUnavailable
	case isotone.CodeOverloaded, isotone.CodeQuotaExceeded:
		return codeResourceExhausted
	case isotone.CodeDeadlineExceeded:
		return codeDeadlineExceeded
	case isotone.CodeLocked:
		return codeAborted // it may be free later
	case isotone.CodeRegressed, isotone.CodeWrongCluster, isotone.CodeSessionExpired, isotone.CodeNotBound, isotone.CodeNotHeld, isotone.CodeFenced:
		return codeFailedPrecondition
	default:
		return codeInternal
	}
}

// refusal is an error with another code of gRPC than that of its code of Isotone.
type refusal struct {
	code uint64
	err  *isotone.Error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// FaultOf returns the error of a call for timestamps, given that of a [front.Batch]: what is not found is a timeline, and not
// the method.
func FaultOf(err error) error {
	if e := front.ErrorOf(err); e.Code == isotone.CodeNotFound {
		return &refusal{codeNotFound, e}
	}
	return err
}

const (
	// domain is that of the reasons.
	domain = "isotone"
	// messageMax bounds the message of a status: clients accept 8 KiB of fields or so.
	messageMax = 1 << 10
)

// Status is a google.rpc.Status, and what an observer is told.
type Status struct {
	// Code is isotone.Code, or httpapi.CodeOK.
	Code string

	code    uint64
	message string
	details []byte // the google.rpc.Status itself; nil for OK
}

// StatusOf returns the status of a call that ended with err; nil: OK.
func StatusOf(err error) Status {
	if err == nil {
		return Status{Code: httpapi.CodeOK}
	}
	f := httpapi.FaultOf(err)
	s := Status{Code: string(f.Code), code: codeOf(f.Code), message: strings.ToValidUTF8(f.Message, "?")}
	if len(s.message) > messageMax {
		s.message = strings.ToValidUTF8(s.message[:messageMax], "")
	}
	var r *refusal
	if errors.As(err, &r) {
		s.code = r.code
	}
	s.details = s.appendTo(nil, &f)
	return s
}

// appendTo appends the status as a message.
func (s *Status) appendTo(b []byte, f *httpapi.Fault) []byte {
	b = AppendText(AppendVarint(b, 1, s.code), 2, s.message)
	info := AppendText(AppendText(nil, 1, s.Code), 2, domain)
	if f.Leader != "" {
		info = AppendText(info, 3, AppendText(AppendText(nil, 1, "leader"), 2, f.Leader))
	}
	b = appendDetail(b, "google.rpc.ErrorInfo", info)
	if f.RetryAfter > 0 {
		delay := AppendVarint(nil, 1, uint64(f.RetryAfter)) // google.protobuf.Duration.seconds
		b = appendDetail(b, "google.rpc.RetryInfo", AppendText(nil, 1, delay))
	}
	return b
}

// appendDetail appends a detail of a status, a google.protobuf.Any.
func appendDetail(b []byte, name string, message []byte) []byte {
	packed := AppendText(AppendText(nil, 1, "type.googleapis.com/"+name), 2, message)
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), packed)
}

// Fields calls set for each field of the trailers.
func (s *Status) Fields(set func(name, value string)) {
	set("Grpc-Status", strconv.FormatUint(s.code, 10))
	if s.message != "" {
		set("Grpc-Message", escape(s.message))
	}
	if s.details != nil {
		set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(s.details))
	}
}

// escape encodes a message for the field grpc-message.
func escape(message string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(message) {
		if c := message[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Fail answers a call with err, in the form without a message, and returns its code. Nothing was written before.
func Fail(w http.ResponseWriter, err error) string {
	s := StatusOf(err)
	h := w.Header()
	setHead(h)
	s.Fields(h.Set)
	w.WriteHeader(http.StatusOK)
	return s.Code
}

// Answer answers a call with one message. Nothing was written before.
func Answer(w http.ResponseWriter, message []byte) {
	h := w.Header()
	setHead(h)
	_, _ = w.Write(EndFrame(append(BeginFrame(nil), message...), 0)) // it fails for a client that has left
	ok := StatusOf(nil)
	ok.Fields(func(name, value string) { h[http.TrailerPrefix+name] = []string{value} })
}

var (
	contentTypes    = []string{ContentType}
	acceptEncodings = []string{"identity"}
)

func setHead(h http.Header) {
	h["Content-Type"], h["Grpc-Accept-Encoding"] = contentTypes, acceptEncodings
}
