package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// TestTimeout_BoundsTheWholeCommand, however often it asks and whatever it waits for. The test ends with that of the package
// if one does not.
func TestTimeout_BoundsTheWholeCommand(t *testing.T) {
	t.Parallel()
	learner := front.MemberRecord{NodeID: 4, Role: "learner", PeerAddr: "d:1", Promote: true}
	next := front.MemberRecord{NodeID: 3, Generation: 1, Role: "learner", PeerAddr: "c:9", Replaces: 3, Promote: true}
	off := front.MemberRecord{NodeID: 2, Role: "voter", PeerAddr: "p-1.x:1", Incarnation: "02"}
	pods := func(id uint64, addr string) front.MemberRecord {
		return front.MemberRecord{NodeID: id, Role: "voter", PeerAddr: addr, Connected: true, Incarnation: "01"}
	}
	for args, s := range map[string]answer{
		"member add 4 d:1 --voter --wait 1h":                                                    members(one, learner),
		"member replace 3 c:9 --wait 1h --yes":                                                  members(one, next),
		"member reconcile --replicas 2 --minimum 1 --peer-addr p-{ordinal}.x:1 --wait 1h --yes": members(pods(1, "p-0.x:1"), off, pods(3, "p-2.x:1")),
	} {
		code, out, err := command(append(strings.Fields(args), "--timeout", "300ms", "--endpoint", serveScript(t, s).addr())...)
		want := "after 300ms, the --timeout"
		if strings.Contains(err, "no answer within 300ms") { // the machine is slow
			want = "no answer within"
		}
		if code != 1 || !strings.Contains(err, want) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, err)
		}
	}
	hang := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(func() { close(hang); silent.Close() })
	at := silent.Listener.Addr().String()
	for _, args := range []string{"member list", "timestamp", "drain --yes", "ready", "backup " + t.TempDir() + "/b"} {
		wantRun(t, 1, "", at+": no answer within 200ms (--timeout)", append(strings.Fields(args), "--timeout", "200ms", "--endpoint", at)...)
	}
	wantRun(t, 1, "", "no answer within 100ms", "status", "--timeout", "200ms", at)
	wantRun(t, 1, "", "no answer within 100ms", "status", "--users", "--timeout", "300ms", at)
	wantRun(t, 1, "", "the checks have not ended: no answer within 200ms (--timeout)", "doctor", "--timeout", "200ms", "--endpoint", at)
	for _, args := range []string{"member list", "drain", "ready", "status", "doctor"} {
		wantRun(t, 2, "", "--timeout 0s", append(strings.Fields(args), "--timeout", "0s", "--endpoint", at)...)
	}
	// A leader that is elected too late.
	none := serveScript(t, members(one), fault(isotone.CodeNoLeader, "no leader is known", ""))
	code, out, err := command("member", "add", "4", "d:1", "--voter", "--timeout", "1s", "--endpoint", none.addr())
	if code != 1 || !strings.Contains(err, "no_leader: no leader is known") && !strings.Contains(err, "no answer within 1s") { // one of many requests was under way at the end
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
}
