package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/server"
)

// setBack runs a cluster of one node, and has its client see timestamps that are further ahead of
// the clock by ahead than an older copy of the data directory knows. It returns the client, the
// largest timestamp, and the node, which was started again from the copy.
func setBack(t *testing.T, ahead time.Duration) (c *client.Client, seen isotone.Timestamp, m *server.Member) {
	t.Helper()
	dir, older := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	m, end := startAloneIn(t, "0", dir)
	_, port, err := net.SplitHostPort(m.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = client.New(rig.Soon(t), loopback(t, m)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Timestamp(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	end()
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	m, end = startAloneIn(t, port, dir)
	if a, err := m.Node.RaiseFloor(rig.Soon(t), fmt.Sprint(time.Now().Add(ahead).UnixNano()), false); err != nil || !a.Raised {
		t.Fatalf("%+v, %v", a, err)
	}
	r, err := c.Timestamps(rig.Soon(t), 1000)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(older))); err != nil {
		t.Fatal(err)
	}
	m, _ = startAloneIn(t, port, dir)
	return c, r.Last(), m
}

// isAbove reports whether a client without a floor gets timestamps above seen.
func isAbove(t *testing.T, m *server.Member, seen isotone.Timestamp) bool {
	t.Helper()
	stranger, err := client.New(rig.Soon(t), loopback(t, m))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	ts, err := stranger.Timestamp(rig.Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return seen.Before(ts)
}

// TestFloor_ClientsRaiseAClusterThatWasSetBack: their next timestamps are larger than all before,
// and no call fails (I13).
func TestFloor_ClientsRaiseAClusterThatWasSetBack(t *testing.T) {
	t.Parallel()
	c, seen, m := setBack(t, 9*time.Second)
	for isAbove(t, m, seen) { // a restart took longer than that
		c, seen, m = setBack(t, 9*time.Second)
	}
	last := seen
	for i := range 20 {
		ts, err := c.Timestamp(rig.Soon(t))
		if i%2 == 1 {
			var r isotone.Range
			r, err = c.Timestamps(rig.Soon(t), 10)
			ts = r.First
		}
		if err != nil || !last.Before(ts) {
			t.Fatalf("call %d: %v after %v, %v", i, ts, last, err)
		}
		last = ts
	}
	if !isAbove(t, m, last) {
		t.Error("then, another client is behind")
	}
}

// TestFloor_BeyondTheGuardIsRefusedUntilAnOperatorRaisesIt, in every protocol.
func TestFloor_BeyondTheGuardIsRefusedUntilAnOperatorRaisesIt(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c, seen, m := setBack(t, time.Hour)
	for range 3 {
		if ts, err := c.Timestamp(rig.Soon(t)); !errors.Is(err, isotone.ErrRegressed) || !strings.Contains(err.Error(), "isotone floor raise") {
			t.Errorf("%v, %v", ts, err)
		}
	}
	addr := loopback(t, m)
	for _, query := range []string{"?floor=", "?mode=lease&n=65536&floor="} { // on the fast path, and not
		status, body := rig.Fetch(t, "http://"+addr+"/timestamp"+query+seen.String())
		if status != http.StatusPreconditionFailed || !strings.Contains(body, `"code":"regressed"`) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if got := over(t, addr, "TS 1 LEASE FLOOR "+seen.String()); !strings.HasPrefix(got, "-REGRESSED ") || !strings.Contains(got, "isotone floor raise") {
		t.Errorf("%q", got)
	}
	if _, err := m.Node.RaiseFloor(rig.Soon(t), seen.String(), false); err != nil {
		t.Fatal(err)
	}
	if ts, err := c.Timestamp(rig.Soon(t)); err != nil || !seen.Before(ts) {
		t.Errorf("raised: %v after %v, %v", ts, seen, err)
	}
}

// TestFloor_IsCarriedThroughAProxy, over HTTP and RESP, for clients that may move time, and refused there as by the node. The
// proxy's other clients are not concerned, and get no right that only the proxy has.
func TestFloor_IsCarriedThroughAProxy(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	m, _ := startAlone(t, "0")
	proxy, _ := runProxy(t, "--node", loopback(t, m), "--anonymous", "all")
	common, _ := runProxy(t, "--node", loopback(t, m))
	ahead := func(d time.Duration) isotone.Timestamp {
		return isotone.Timestamp{Time: uint64(time.Now().Add(d).UnixNano())}
	}
	tooFar := ahead(time.Minute)
	for _, query := range []string{"?floor=", "?n=65536&floor="} {
		if status, body := rig.Fetch(t, "http://"+common+"/timestamp"+query+tooFar.String()); status != http.StatusPreconditionFailed || !strings.Contains(body, "role floors") {
			t.Errorf("without the right, %s: %d %s", query, status, body)
		}
	}
	if got := over(t, common, "TS 3 QUORUM FLOOR "+tooFar.String()); !strings.HasPrefix(got, "-REGRESSED ") {
		t.Errorf("without the right: %q", got)
	}
	if _, body := rig.Fetch(t, "http://"+common+"/timestamp"); hex.EncodeToString([]byte(body)) >= ahead(time.Second).String() {
		t.Errorf("time was moved to %x", body)
	}
	for i, query := range []string{"?floor=", "?n=65536&floor="} {
		floor := ahead(time.Duration(3+i) * time.Second)
		status, body := rig.Fetch(t, "http://"+proxy+"/timestamp"+query+floor.String())
		if want, _ := floor.MarshalBinary(); status != 200 || bytes.Compare([]byte(body[:min(16, len(body))]), want) <= 0 {
			t.Errorf("%s: %d %x", query, status, body[:min(16, len(body))])
		}
	}
	floor := ahead(8 * time.Second)
	got := over(t, proxy, "TS 3 QUORUM FLOOR "+floor.String())
	if !strings.HasPrefix(got, "$16\r\n") || hex.EncodeToString([]byte(got[5:21])) <= floor.String() {
		t.Errorf("%q", got)
	}
	far := ahead(time.Hour)
	if status, body := rig.Fetch(t, "http://"+proxy+"/timestamp?floor="+far.String()); status != http.StatusPreconditionFailed || !strings.Contains(body, `"code":"regressed"`) {
		t.Errorf("%d %s", status, body)
	}
	if got := over(t, proxy, "TS FLOOR "+far.String()); !strings.HasPrefix(got, "-REGRESSED ") {
		t.Errorf("%q", got)
	}
	if status, body := rig.Fetch(t, "http://"+proxy+"/ready"); status != 200 {
		t.Errorf("/ready: %d %s", status, body)
	}
	if status, body := rig.Fetch(t, "http://"+proxy+"/timestamp"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

// TestFloor_TheAdministrativeEndpointReadsTheSameForms, for programs that do without the command.
func TestFloor_TheAdministrativeEndpointReadsTheSameForms(t *testing.T) {
	m, _ := startAlone(t, "0")
	post := func(body string) string {
		t.Helper()
		resp, err := http.Post("http://"+loopback(t, m)+"/admin/floor", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	wide := isotone.Timestamp64From(isotone.Timestamp{Time: uint64(time.Now().Add(time.Hour).UnixNano())})
	if got, want := post(`{"time":"`+wide.String()+`"}`), fmt.Sprintf(`{"time":"%d","raised":true`, wide.Timestamp().Time); !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	for body, want := range map[string]string{
		`{"time":"5"}`: "cannot be a floor", `{"time":"9223372036854775805","force":true}`: "not after 2080", `{}`: "is no timestamp",
		`{"time":"2079-01-01T00:00:00Z"}`: "use force", // the name of the field
	} {
		if got := post(body); !strings.Contains(got, "invalid_argument") || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", body, got, want)
		}
	}
}

// over sends a command over RESP and returns the answer.
func over(t *testing.T, addr, command string) string {
	t.Helper()
	var d net.Dialer
	nc, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(nc, command+"\r\nQUIT\r\n")
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}
