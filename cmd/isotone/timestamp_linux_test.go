package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/snowflake"
)

// Timestamps come from the leader, whichever node is named, and those of one command are consecutive.
func TestTimestamp_ComesFromTheLeader(t *testing.T) {
	members := startThree(t)
	var last isotone.Timestamp
	for _, m := range members {
		code, out, stderr := command("timestamp", "-n", "3", "--endpoint", m.Addr)
		lines := strings.Fields(out)
		if code != 0 || len(lines) != 3 {
			t.Fatalf("exit code %d: %s%s", code, out, stderr)
		}
		for i, line := range lines {
			ts, err := isotone.ParseTimestamp(line)
			if err != nil || !last.Before(ts) || i > 0 && (ts.Time != last.Time || ts.Index != last.Index+1) {
				t.Errorf("%s after %s: %v", line, last, err)
			}
			last = ts
		}
	}
	follower := members[1].Addr
	code, out, stderr := command("timestamp", "--format", "u64", "--mode", "lease", "--endpoint", follower+","+members[0].Addr)
	if u, err := isotone.ParseTimestamp64(strings.TrimSpace(out)); code != 0 || err != nil || u.Before(isotone.Timestamp64From(last)) {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
	var a struct{ Timestamps []struct{ Hex string } }
	code, out, stderr = command("timestamp", "--json", "-n", "2", "--endpoint", follower)
	if err := json.Unmarshal([]byte(out), &a); code != 0 || err != nil || len(a.Timestamps) != 2 || len(a.Timestamps[1].Hex) != 32 || !strings.HasSuffix(out, "}\n") {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
}

// A node makes IDs by itself.
func TestID_ComesFromAnyNode(t *testing.T) {
	members := startThree(t)
	seen := map[snowflake.ID]bool{}
	for _, m := range members {
		code, out, stderr := command("id", "-n", "100", "--endpoint", m.Addr)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		for line := range strings.Lines(out) {
			id, err := snowflake.Parse(strings.TrimSuffix(line, "\n"))
			if err != nil || seen[id] {
				t.Fatalf("%q: %v", line, err)
			}
			seen[id] = true
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d IDs", len(seen))
	}
	var a struct{ IDs []snowflake.ID }
	code, out, stderr := command("id", "--format", "json", "--endpoint", members[2].Addr)
	if err := json.Unmarshal([]byte(out), &a); code != 0 || err != nil || len(a.IDs) != 1 {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
}

func TestTimestamp_RefusesWhatCannotBeMeant(t *testing.T) {
	for args, want := range map[string]string{
		"timestamp -n 0":                      "--count 0: want 1 to 65536",
		"timestamp -n 65537":                  "--count 65537",
		"timestamp -n -1":                     "-1",
		"timestamp -n 1 -n 2":                 "given twice",
		"timestamp --format range":            "--format \"range\": want hex, u64 or json",
		"timestamp --format u64 --json":       "exclude each other",
		"timestamp --mode strong":             "--mode \"strong\": want quorum or lease",
		"timestamp 5":                         "unexpected argument 5\nRun",
		"timestamp 127.0.0.1:8081":            "An address is named with --endpoint",
		"timestamp --timeout 0s":              "--timeout 0s: want more than 0",
		"id --format hex":                     "--format \"hex\": want decimal or json",
		"id -n 70000":                         "--count 70000",
		"id --endpoint localhost:1,":          "an address is empty",
		"timestamp --endpoint ftp://a:1":      "--endpoint",
		"decode --snowflake-layout 1/2":       "layout",
		"decode --snowflake-epoch-ms -1 7":    "epoch",
		"decode zz":                           "zz",
		"timestamp --user a --endpoint b:1":   "--password-file",
		"timestamp --ca x --endpoint unix:/y": "--ca",
	} {
		if code, out, stderr := command(strings.Fields(args)...); code != exitUsage || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q: %s%s", args, code, want, out, stderr)
		}
	}
	wantRun(t, exitFailure, "", "127.0.0.1:1", "timestamp", "--endpoint", "127.0.0.1:1", "--timeout", "1s")
}

// TestTimestamp_OfAnotherServerIsNone: what no node would answer is no answer, and the next address of a list is asked. One that
// hangs does not take the time of the others.
func TestTimestamp_OfAnotherServerIsNone(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer other.Close()
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	m := startThree(t)[0]
	foreign := strings.TrimPrefix(other.URL, "http://")
	for _, args := range []string{"timestamp", "timestamp --json", "timestamp -f u64", "id", "id --json", "id -n 3", "member list"} {
		fields := strings.Fields(args)
		wantRun(t, exitFailure, "", foreign+": the answer", append(fields, "--endpoint", foreign)...)
		wantRun(t, 0, "", "", append(fields, "--endpoint", foreign+","+m.Addr)...)
	}
	wantRun(t, 0, "", "", "id", "--endpoint", hung.Addr().String()+","+m.Addr, "--timeout", "5s")
	wantRun(t, exitFailure, "", "is this a node?", "ready", "--endpoint", foreign)
}

// TestTimestamp_WithCredentials over TLS, from a node that gives strangers nothing.
func TestTimestamp_WithCredentials(t *testing.T) {
	signer := rig.NewSigner(t)
	n := testnode.Guarded(t, `{"users": {"app": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`, func(s *config.Settings) {
		s.RequireTLS = true
		s.TLSCert, s.TLSKey = signer.Issue("node")
	})
	secret, ca := rig.SecretFile(t, rig.Secret), signer.File
	wantRun(t, exitFailure, "", "this port requires TLS", "timestamp", "--endpoint", n.Client)
	wantRun(t, exitFailure, "", "unauthorized", "timestamp", "-k", "--endpoint", "https://"+n.Client)
	code, out, stderr := command("timestamp", "--user", "app", "--password-file", secret, "--ca", ca, "--endpoint", n.Client)
	if _, err := isotone.ParseTimestamp(strings.TrimSpace(out)); code != 0 || err != nil {
		t.Errorf("exit code %d, %v: %s", code, err, stderr)
	}
	wantRun(t, exitFailure, "", "forbidden", "id", "--user", "app", "--password-file", secret, "--ca", ca, "--endpoint", n.Client)
}

func TestDecode_ExplainsArgumentsAndStandardInput(t *testing.T) {
	wantRun(t, 0, "470729569075200000: 64-bit timestamp\n  time               2026-11-26T11:00:00Z (", "", "decode", "470729569075200000")
	from := func(input io.Reader, args decodeCmd) (string, string, error) {
		var out, stderr bytes.Buffer
		args.Layout, args.Epoch = snowflake.Twitter.String(), snowflake.Twitter.Epoch
		err := args.from(t.Context(), input, console{&out, &stderr})
		return out.String(), stderr.String(), err
	}
	hex := "18eb9344c46fe0000000000000000007"
	raw, _ := isotone.Timestamp{Time: 0x18eb9344c46fe000, Index: 7}.AppendBinary(nil)
	for _, input := range []string{hex, " " + hex + "\r\n", `"` + hex + `",`, string(raw)} {
		if out, _, err := from(strings.NewReader(input), decodeCmd{}); err != nil || !strings.Contains(out, hex) || !strings.Contains(out, "index             7\n") {
			t.Errorf("%q: %v\n%s", input, err, out)
		}
	}
	for input, want := range map[string]int{
		`{"timestamps":[{"time":"1","index":"7","hex":"` + hex + `"},{"time":"1","index":"8","hex":"` + hex + `"}]}` + "\n": 2,
		`{"timestamps":["470729569075200000"]}`: 1, `{"ids":["2125907415659446272","2125907415659446273"]}`: 2, "\ufeff0x" + hex: 1,
	} {
		if out, _, err := from(strings.NewReader(input), decodeCmd{JSON: true}); err != nil || strings.Count(out, "\n") != want {
			t.Errorf("%q: %v\n%s", input, err, out)
		}
	}
	wantRun(t, 0, "2172 years from now", "", "decode", "18446744073709551615")
	// What has no known form stops nothing else.
	out, _, err := from(strings.NewReader(hex+"\n?\n0123456789abcdef\n"), decodeCmd{JSON: true})
	if !errors.As(err, new(usageError)) || strings.Count(out, "\n") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		var e explained
		if err := json.Unmarshal([]byte(line), &e); err != nil || len(e.Readings) == 0 || e.Readings[0].Fields["hexadecimal"] == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	if !strings.Contains(out, `"unixNanoseconds":"1795690800000000000"`) {
		t.Error(out)
	}
	for input, want := range map[string]string{"": "nothing to decode", " \n": "nothing to decode", "\x00\x01": "2 bytes", strings.Repeat("1 ", decodedInputMax): "more than"} {
		if out, _, err := from(strings.NewReader(input), decodeCmd{}); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%.10q: %v, %s", input, err, out)
		}
	}
}

// TestDecode_EndsWithItsContext while nothing is typed.
func TestDecode_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	silent, _ := io.Pipe()
	cancel(errors.New("interrupt"))
	c := decodeCmd{Layout: "41/5/5/12"}
	if err := c.from(ctx, silent, console{io.Discard, io.Discard}); fmt.Sprint(err) != "interrupt" {
		t.Error(err)
	}
}
