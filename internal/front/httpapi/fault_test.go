package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

func TestFault_SpellsTheVocabulary(t *testing.T) {
	leader := func(addr string) error {
		return &isotone.Error{Code: isotone.CodeNotLeader, Message: "m", Leader: addr}
	}
	for _, tt := range []struct {
		err    error
		status int
		code   isotone.Code
		fields string
	}{
		{isotone.ErrInvalidArgument, 400, isotone.CodeInvalidArgument, ""},
		{isotone.ErrUnauthorized, 401, isotone.CodeUnauthorized, "Www-Authenticate=Bearer, Basic realm=\"isotone\";"},
		{isotone.ErrNotFound, 404, isotone.CodeNotFound, ""},
		{leader("h:1"), 409, isotone.CodeNotLeader, "Isotone-Leader=h:1;Location=https://h:1/p?q;"},
		{leader(""), 503, isotone.CodeNoLeader, "Retry-After=1;"},
		{leader("a\r\nX: y"), 503, isotone.CodeNoLeader, "Retry-After=1;"},
		{leader("a b"), 503, isotone.CodeNoLeader, "Retry-After=1;"},
		{leader("ä:1"), 503, isotone.CodeNoLeader, "Retry-After=1;"},
		{isotone.ErrNoLeader, 503, isotone.CodeNoLeader, "Retry-After=1;"},
		{isotone.ErrOverloaded, 503, isotone.CodeOverloaded, "Retry-After=1;"},
		{&isotone.Error{Code: isotone.CodeOverloaded, RetryAfter: 2 * time.Second}, 503, isotone.CodeOverloaded, "Retry-After=2;"},
		{&isotone.Error{Code: isotone.CodeClock, RetryAfter: 2001 * time.Millisecond}, 503, isotone.CodeClock, "Retry-After=3;"},
		{isotone.ErrClock, 503, isotone.CodeClock, ""},
		{isotone.ErrLocked, 409, isotone.CodeLocked, ""},
		{isotone.ErrSessionExpired, 409, isotone.CodeSessionExpired, ""},
		{isotone.ErrNotBound, 409, isotone.CodeNotBound, ""},
		{isotone.ErrNotHeld, 409, isotone.CodeNotHeld, ""},
		{isotone.ErrFenced, 409, isotone.CodeFenced, ""},
		{isotone.ErrDeadlineExceeded, 504, isotone.CodeDeadlineExceeded, ""},
		{isotone.ErrNoQuorum, 503, isotone.CodeNoQuorum, ""},
		{isotone.ErrWrongCluster, 502, isotone.CodeWrongCluster, ""},
		{isotone.ErrRegressed, 412, isotone.CodeRegressed, ""},
		{isotone.ErrForbidden, 403, isotone.CodeForbidden, ""},
		{isotone.ErrQuotaExceeded, 429, isotone.CodeQuotaExceeded, "Retry-After=1;"},
		{isotone.ErrNoWorker, 503, isotone.CodeNoWorker, "Retry-After=1;"},
		{isotone.ErrInternal, 500, isotone.CodeInternal, ""},
		{fmt.Errorf("w: %w", isotone.ErrClock), 503, isotone.CodeClock, ""},
		{errors.New("x"), 500, isotone.CodeInternal, ""},
		{&isotone.Error{Code: "unheard_of"}, 500, "unheard_of", ""},
	} {
		f := FaultOf(tt.err)
		fields := ""
		f.Fields("https", "/p", "q", func(name, value string) {
			fields += name + "=" + value + ";"
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%s is not canonical", name)
			}
		})
		if f.Status != tt.status || f.Code != tt.code || fields != tt.fields {
			t.Errorf("%v: %d %s %q, want %d %s %q", tt.err, f.Status, f.Code, fields, tt.status, tt.code, tt.fields)
		}
		if f.Reason() != http.StatusText(f.Status) {
			t.Errorf("%d %q, want %q", f.Status, f.Reason(), http.StatusText(f.Status))
		}
	}
}

func TestBody_IsJSONWhateverTheMessage(t *testing.T) {
	if got, want := string(Body("c", "a \"b\"\n\xff")), `{"error":{"code":"c","message":"a \"b\"\n`+`\ufffd"}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAppendJSON_FitsItsBound(t *testing.T) {
	largest := isotone.Timestamp{Time: 1<<64 - 1, Index: 1<<64 - 1}
	got := AppendJSON(nil, largest)
	if want := `{"time":"18446744073709551615","index":"18446744073709551615","hex":"ffffffffffffffffffffffffffffffff"}`; string(got) != want || len(got) > JSONEntryMax {
		t.Errorf("%s, %d bytes", got, len(got))
	}
}
