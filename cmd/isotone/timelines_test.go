package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
)

// TestTimelines_AreManagedByCommands at any node.
func TestTimelines_AreManagedByCommands(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	all := startProcessesWith(t, 3, func(s *config.Settings) { s.Timelines = true })
	stamp := func(args, words string, code int) {
		t.Helper()
		got, out, err := command(append(strings.Fields("timestamp --timeline "+args), "--endpoint", strings.Join(all.addrs(), ","))...)
		if got != code || !strings.Contains(out+err, words) {
			t.Errorf("isotone timestamp --timeline %s: exit code %d, %s%s; want %d, %q", args, got, out, err, code, words)
		}
	}
	all.does(t, "timeline list", "0 of 0 timelines")
	all.does(t, "timeline create orders", "timeline orders is created")
	all.refuses(t, "timeline create orders", `the timeline "orders" exists`)
	many := make([]string, 1100) // more than a page, and than some requests
	for i := range many {
		many[i] = fmt.Sprintf("many/%04d", i)
	}
	all.does(t, "timeline create "+strings.Join(many, " "), "1100 timelines are created")
	all.refuses(t, "timeline create "+strings.Join(append(manyMore(600), many[0]), " "), "of 601 timelines, the first 512 were created; then", "88 of 89 were created", "exists")
	var l front.TimelineList
	code, out, err := all.operate("timeline list --json --prefix many/")
	if e := json.Unmarshal([]byte(out), &l); code != 0 || e != nil || len(l.Timelines) != 1100 || l.Total != 1701 || l.Timelines[1099].Name != many[1099] {
		t.Errorf("exit code %d, %v, %d of %d: %s", code, e, len(l.Timelines), l.Total, err)
	}
	all.does(t, "timeline list --prefix ord", "1 of 1701 timelines")
	await.Until(t, "all nodes own timelines", func() bool { // at once, or after half a minute if the nodes are too busy to answer the leader
		var l front.GroupList
		code, out, _ := all.operate("group list --json")
		owners := map[uint64]bool{}
		if code == 0 && json.Unmarshal([]byte(out), &l) == nil {
			for _, g := range l.Groups {
				owners[g.NodeID] = true
			}
		}
		return owners[1] && owners[2] && owners[3]
	})
	await.Until(t, "doctor sees them", func() bool { // in documents that are up to a second old
		code, out, _ := command("doctor", "--json", "--endpoint", strings.Join(all.addrs(), ","))
		return code == 0 && strings.Contains(out, `"check":"timelines","status":"ok","found":"1701 timelines, owned by 3 nodes"`)
	})
	all.does(t, "timeline show orders", "timeline orders, ID ")
	all.refuses(t, "timeline show ord", `there is no timeline "ord"; see: isotone timeline list`)

	all.refuses(t, "timeline move orders eu", `there is no group "eu"`)
	all.does(t, "group create eu", "group eu exists")
	all.does(t, "timeline move orders eu", "timeline orders is in group eu")
	all.does(t, "timeline move orders eu", "timeline orders is in group eu")
	all.refuses(t, "group drop eu", "has timelines")
	all.refuses(t, "group drop h000", "which stay")
	all.does(t, "group list", "eu ")
	all.refuses(t, "group prefer us 1", `there is no group "us"`)
	all.refuses(t, "group prefer eu 9", "node 9 is no member")
	all.does(t, "group prefer eu 2 3", "group eu prefers 2,3")
	all.does(t, "group create eu", "group eu exists") // and keeps that
	all.does(t, "group list", " 2,3")
	all.does(t, "group prefer eu", "group eu prefers no node")
	all.refuses(t, "group lease us on", `there is no group "us"`)
	all.does(t, "group lease eu off", "group eu has no leases")
	all.does(t, "group lease eu on", "group eu has leases")
	all.does(t, "group lease eu on", "group eu has leases")
	all.does(t, "group list", " on\n")
	all.refuses(t, "timeline seal orders", "isotone group lease GROUP off")
	all.does(t, "group lease eu off", "group eu has no leases")

	all.does(t, "timeline quota orders --requests 5 --timestamps 100", "timeline orders: at most 5 requests and 100 timestamps a second")
	all.does(t, "timeline show orders", "at most 5 requests and 100 timestamps a second")
	all.does(t, "timeline quota orders", "timeline orders: no quota")
	for _, protocol := range []string{"http1", "resp"} {
		load := []string{"bench", "--protocol", protocol, "--requests", "200", "--connections", "4", "--target", strings.Join(all.addrs(), ","), "--timeline"}
		wantRun(t, 0, "owner", "", append(load, "orders")...)
		wantRun(t, 2, "", "not_found: there is no timeline", append(load, "nothing", "--duration", "1s")...)
	}
	all.refuses(t, "timeline quota orders --requests 9999999999", "a rate is at most")

	stamp("orders -n 2", "\n", 0)
	stamp("nothing", "isotone timeline create nothing", 1)
	wantRun(t, 1, "", "a name of 0 bytes", "timestamp", "--timeline", "", "--endpoint", all.addrs()[0])
	far := time.Now().Add(48 * time.Hour).UTC()
	all.refuses(t, "timeline floor orders "+far.Format(time.RFC3339), "use --force")
	all.does(t, "timeline floor orders --force "+far.Format(time.RFC3339), "all later timestamps of timeline orders are larger than "+far.Format("2006-01-02T15"))
	stamp("orders -f json", fmt.Sprintf(`"time":"%d`, far.Unix()), 0)
	all.does(t, "timeline delete orders", "timeline orders is deleted")
	stamp("orders", "there is no timeline", 1)
	all.refuses(t, "timeline delete orders", `there is no timeline "orders"`)
	all.does(t, "timeline create orders", "timeline orders is created")
	stamp("orders -f json", fmt.Sprintf(`"time":"%d`, far.Unix()), 0) // it goes on above
	all.does(t, "group drop eu", "group eu is removed")

	all.does(t, "timeline seal orders", "timeline orders is sealed: all its timestamps are before ")
	all.does(t, "timeline seal orders", "timeline orders is sealed")
	all.does(t, "timeline show orders", "sealed; all its timestamps are before ")
	stamp("orders", "is sealed", 1)
	logs := ""
	for _, p := range all {
		logs += p.log.String()
	}
	if !strings.Contains(logs, "an operator has moved the time of timelines") || !strings.Contains(logs, `"timelines":["orders"]`) {
		t.Errorf("no log tells who has moved time: %s", logs)
	}
}

func manyMore(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("more/%04d", i))
	}
	return names
}

func timelinesAnswer(records ...front.TimelineRecord) answer {
	return func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(front.TimelineList{Total: len(records), Timelines: records})
	}
}

// TestTimelines_WhatCannotBeUndoneIsAskedForAndLookedAfter: without a confirmation nothing is sent, and an answer that was lost is looked up.
func TestTimelines_WhatCannotBeUndoneIsAskedForAndLookedAfter(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	stdin(t, null)
	was, next := front.TimelineRecord{Name: "a", ID: 5, Group: "h001"}, front.TimelineRecord{Name: "a", ID: 9, Group: "h001"}
	sealed, moved, limited := was, was, was
	limited.Quota.Requests = 5
	sealed.Sealed, moved.Group = true, "eu"
	for command, words := range map[string]string{"delete a": "will fail from now on: a.", "seal a": "issues no timestamps any more", "floor a 2026-11-22T15:04:05Z": "cannot be undone"} {
		s := serveScript(t, timelinesAnswer(was))
		wantRun(t, 2, "", words, append(append([]string{"timeline"}, strings.Fields(command)...), "--endpoint", s.addr())...)
		if got := fmt.Sprint(s.requests()); strings.Contains(got, "POST") {
			t.Errorf("without a confirmation: %s", got)
		}
	}
	late := fault(isotone.CodeDeadlineExceeded, "late", "")
	for _, tt := range []struct {
		command string
		code    int
		words   string
		script  []answer
	}{
		{"delete a", 0, "a is deleted", []answer{timelinesAnswer(was), late, timelinesAnswer()}},
		{"delete a", 0, "a is deleted", []answer{timelinesAnswer(was), late, timelinesAnswer(next)}},
		{"delete a", 1, "late", []answer{timelinesAnswer(was), late, timelinesAnswer(was)}},
		{"delete a", 1, "look before", []answer{timelinesAnswer(was), late, fault(isotone.CodeInternal, "broken", "")}},
		{"seal a", 0, "a is sealed", []answer{timelinesAnswer(was), late, timelinesAnswer(sealed)}},
		{"seal a", 0, "a is sealed", []answer{timelinesAnswer(sealed)}},
		{"seal a", 1, "late", []answer{timelinesAnswer(was), late, timelinesAnswer(next)}},
		{"move a eu", 0, "a is in group eu", []answer{timelinesAnswer(was), late, timelinesAnswer(moved)}},
		{"quota a --requests 5", 0, "at most 5 requests a second", []answer{timelinesAnswer(was), late, timelinesAnswer(limited)}},
		{"quota a --requests 5", 1, "late", []answer{timelinesAnswer(was), late, timelinesAnswer(was)}},
		{"move a eu", 1, "late", []answer{timelinesAnswer(was), late, timelinesAnswer(next)}},
	} {
		args := append([]string{"timeline"}, strings.Fields(tt.command)...)
		code, out, err := command(append(args, "--yes", "--timeout", "30s", "--endpoint", serveScript(t, tt.script...).addr())...)
		if code != tt.code || !strings.Contains(out+err, tt.words) {
			t.Errorf("%s: exit code %d, %q %q; want %d, %q", tt.command, code, out, err, tt.code, tt.words)
		}
	}
}

// TestTimelines_ANodeThatRepeatsAPageEndsTheList.
func TestTimelines_ANodeThatRepeatsAPageEndsTheList(t *testing.T) {
	s := serveScript(t, func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(front.TimelineList{Total: 2, After: "a", Timelines: []front.TimelineRecord{{Name: "a", ID: 5}}})
	})
	wantRun(t, 0, "2 of 2 timelines", "", "timeline", "list", "--endpoint", s.addr())
}

// TestTimelines_AreOffWithoutTheSetting, and a proxy does not answer with the default order instead.
func TestTimelines_AreOffWithoutTheSetting(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	m, _ := startAlone(t, "0")
	wantRun(t, 1, "", "TIMELINES=1", "timeline", "create", "a", "--endpoint", loopback(t, m))
	wantRun(t, 1, "", "TIMELINES=1", "group", "create", "eu", "--endpoint", loopback(t, m))
	wantRun(t, 0, "0 of 0 timelines", "", "timeline", "list", "--endpoint", loopback(t, m))
	proxy, _ := runProxy(t, "--node", loopback(t, m))
	if status, body := rig.Fetch(t, "http://"+proxy+"/timestamp?timeline=a"); status != 404 || !strings.Contains(body, "not_found") {
		t.Errorf("a proxy: %d %s", status, body)
	}
}
