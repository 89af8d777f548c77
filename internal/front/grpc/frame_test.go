package grpc

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isotone/isotone"
)

func frame(message string) string { return string(EndFrame(append(BeginFrame(nil), message...), 0)) }

func TestMessages_InAnyPieces(t *testing.T) {
	long := strings.Repeat("x", MessageMax)
	sent := frame("one") + frame("") + frame(long) + frame("end")
	for name, body := range map[string]io.Reader{
		"at once": strings.NewReader(sent), "byte by byte": iotest.OneByteReader(strings.NewReader(sent)), "with the end": iotest.DataErrReader(strings.NewReader(sent)),
	} {
		m := messages{body: body, buffer: new([readSize]byte)}
		for _, want := range []string{"one", "", long, "end"} {
			if got, err := m.next(); err != nil || string(got) != want {
				t.Fatalf("%s: %q, %v; want %q", name, got, err, want)
			}
		}
		if _, err := m.next(); err != io.EOF {
			t.Errorf("%s: %v at the end", name, err)
		}
	}
}

func TestMessages_RefuseWhatIsNoMessage(t *testing.T) {
	for name, sent := range map[string]string{
		"it is cut off": frame("one")[:6], "there is half a prefix": "\x00\x00", "it is too long": "\x00\x00\x00\x10\x01", "it is compressed": "\x01\x00\x00\x00\x00",
		"there is none": "", "there are two": frame("one") + frame("two"),
	} {
		m := messages{body: strings.NewReader(sent), buffer: new([readSize]byte)}
		_, err := m.only()
		if !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
		if want := uint64(codeInvalidArgument); name == "it is compressed" && StatusOf(err).code != codeUnimplemented || name != "it is compressed" && StatusOf(err).code != want {
			t.Errorf("%s: code %d", name, StatusOf(err).code)
		}
	}
}

func TestParseTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1S": time.Second, "99999999H": 1 << 62, "0m": 0, "20m": 20 * time.Millisecond, "3M": 3 * time.Minute, "5u": 5 * time.Microsecond, "7n": 7,
	} {
		if got, err := ParseTimeout(value); err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	for _, value := range []string{"", "S", "1", "123456789S", "-1S", "+1S", "1s", "1.5S", " 1S"} {
		if got, err := ParseTimeout(value); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%q: %v, %v", value, got, err)
		}
	}
}

func TestIsContentType(t *testing.T) {
	for value, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "Application/GRPC; charset=utf-8": true, "application/grpc+json": false, "application/grpc-web": false,
		"application/json": false, "": false,
	} {
		if IsContentType(value) != want {
			t.Errorf("%q", value)
		}
	}
}

// fields returns the trailers of err.
func fields(err error) map[string]string {
	got := map[string]string{}
	s := StatusOf(err)
	s.Fields(func(name, value string) { got[name] = value })
	return got
}

func TestStatus_HasTheReasonTheLeaderAndTheDelay(t *testing.T) {
	got := fields(&isotone.Error{Code: isotone.CodeNotLeader, Message: "50 % of größe\n", Leader: "10.0.0.1:8080"})
	if got["Grpc-Status"] != "14" || got["Grpc-Message"] != "50 %25 of gr%C3%B6%C3%9Fe%0A" {
		t.Errorf("%v", got)
	}
	if back, err := url.PathUnescape(got["Grpc-Message"]); err != nil || back != "50 % of größe\n" {
		t.Errorf("%q, %v", back, err)
	}
	info := detail(t, got, 0, "google.rpc.ErrorInfo")
	leader := of(info, "metadata").Map().Get(protoreflect.ValueOfString("leader").MapKey())
	if of(info, "reason").String() != "not_leader" || of(info, "domain").String() != "isotone" || leader.String() != "10.0.0.1:8080" {
		t.Errorf("%v", info)
	}
	got = fields(&isotone.Error{Code: isotone.CodeQuotaExceeded, Message: "later", RetryAfter: 2500 * time.Millisecond})
	if retry := detail(t, got, 1, "google.rpc.RetryInfo"); got["Grpc-Status"] != "8" || of(of(retry, "retry_delay").Message(), "seconds").Int() != 3 {
		t.Errorf("%v, %v", got, retry)
	}
	if got := fields(nil); len(got) != 1 || got["Grpc-Status"] != "0" {
		t.Errorf("%v", got)
	}
}

// detail returns a detail of the status in trailers.
func detail(t *testing.T, trailers map[string]string, at int, name string) protoreflect.Message {
	t.Helper()
	b, err := base64.RawStdEncoding.DecodeString(trailers["Grpc-Status-Details-Bin"])
	if err != nil {
		t.Fatal(err)
	}
	status := parsed(t, "google.rpc.Status", b)
	if details := of(status, "details").List(); details.Len() > at {
		packed := details.Get(at).Message()
		if got := of(packed, "type_url").String(); got != "type.googleapis.com/"+name {
			t.Fatalf("detail %d is a %s", at, got)
		}
		return parsed(t, name, of(packed, "value").Bytes())
	}
	t.Fatalf("%v has no detail %d", status, at)
	return nil
}

func TestStatus_EachCodeHasOneOfGRPC(t *testing.T) {
	for code, want := range map[isotone.Code]string{
		isotone.CodeInvalidArgument: "3", isotone.CodeUnauthorized: "16", isotone.CodeForbidden: "7", isotone.CodeNotFound: "12", isotone.CodeNotLeader: "14",
		isotone.CodeNoLeader: "14", isotone.CodeOverloaded: "8", isotone.CodeQuotaExceeded: "8", isotone.CodeDeadlineExceeded: "4", isotone.CodeClock: "14",
		isotone.CodeNoWorker: "14", isotone.CodeNoQuorum: "14", isotone.CodeRegressed: "9", isotone.CodeWrongCluster: "9", isotone.CodeInternal: "13",
	} {
		err := &isotone.Error{Code: code, Message: strings.Repeat("ü", messageMax), Leader: "a:1"}
		got := fields(err)
		if info := detail(t, got, 0, "google.rpc.ErrorInfo"); got["Grpc-Status"] != want || of(info, "reason").String() != string(code) {
			t.Errorf("%s: %v, %v", code, got, info)
		}
		if len(got["Grpc-Message"]) > 3*messageMax {
			t.Errorf("a message of %d bytes", len(got["Grpc-Message"]))
		}
	}
	if got := fields(errors.New("a defect")); got["Grpc-Status"] != "13" {
		t.Errorf("%v", got)
	}
}

func FuzzParseFrame(f *testing.F) {
	f.Add([]byte(frame("message") + "rest"))
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		message, rest, err := ParseFrame(b)
		if err == nil && message != nil && !bytes.Equal(append(EndFrame(append(BeginFrame(nil), message...), 0), rest...), b) {
			t.Errorf("%x: %x, %x", b, message, rest)
		}
		if message == nil && !bytes.Equal(rest, b) {
			t.Errorf("%x is kept as %x", b, rest)
		}
	})
}
