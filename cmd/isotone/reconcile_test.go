package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

func TestReconcile_RefusesBadFlags(t *testing.T) {
	for _, args := range []string{
		"--replicas 0 --peer-addr a-{ordinal}:1", "--replicas 65 --peer-addr a-{ordinal}:1", "--replicas 3 --peer-addr a-0:1", "--replicas 3 --peer-addr a-{ordinal}",
		"--replicas 3 --peer-addr a-{ordinal}-{ordinal}:1", "--replicas 3 --peer-addr a-{ordinal}:1 --minimum 0", "--replicas 3 --peer-addr a-{ordinal}:1 --node-ids 3=4",
		"--peer-addr a-{ordinal}:1", "--replicas 3",
	} {
		if code, out, text := command(append([]string{"member", "reconcile"}, strings.Fields(args)...)...); code != exitUsage || out != "" {
			t.Errorf("%s: exit code %d: %s", args, code, text)
		}
	}
}

// TestReconcile_GrowsAndShrinksACluster of processes, whose addresses have numbers in place of names.
func TestReconcile_GrowsAndShrinksACluster(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 3)
	args := func(replicas int, more string) string {
		return fmt.Sprintf("member reconcile --replicas %d --peer-addr pod-{ordinal}.test:1 %s", replicas, more)
	}
	for id := range uint64(3) { // on record as pods; connections that are open stay
		all.does(t, fmt.Sprintf("member update %d pod-%d.test:1", id+1, id), "are changed")
	}
	all.does(t, args(3, ""), "the members are as wanted: node 1 2 3")
	all.does(t, args(5, "--dry-run"), "to do: node 4 is added, at pod-3.test:1")
	if l := all.list(t); len(l.Members) != 3 {
		t.Fatalf("a dry run: %+v", l)
	}
	all.does(t, args(4, ""), "node 1 2 3 4")
	all.does(t, args(4, ""), "node 1 2 3 4")
	all.roles(t, "1 voter, 2 voter, 3 voter, 4 learner")
	all.does(t, args(3, ""), "node 1 2 3")
	all.refuses(t, args(4, ""), "node 4, at pod-3.test:1, was removed before")
	all.refuses(t, args(1, ""), "of 3 voters 1 would be left")
	all.does(t, args(4, "--node-ids 3=104"), "node 1 2 3 104")
	if code, _, text := command("member", "reconcile", "--replicas", "3", "--peer-addr", "pod-{ordinal}.test:1", "--endpoint", strings.Join(all.addrs(), ",")); code == 0 || !strings.Contains(text, "Node 104 is removed for good") {
		t.Errorf("without --yes: exit code %d: %s", code, text)
	}
	all.does(t, args(3, ""), "node 1 2 3")
	if l := all.list(t); !slices.Equal(l.Removed, []uint64{4, 104}) {
		t.Errorf("%+v", l)
	}
}

// TestReconcile_RemovesALeader, and no voter while one that stays is away.
func TestReconcile_RemovesALeader(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 4)
	for id := range uint64(4) {
		all.does(t, fmt.Sprintf("member update %d pod-%d.test:1", id+1, id), "are changed")
	}
	if err := all[1].stop(); err != nil {
		t.Fatal(err)
	}
	rest := processes{all[0], all[2], all[3]}
	const shrink = "member reconcile --replicas 3 --peer-addr pod-{ordinal}.test:1"
	await.Done(t, await.Timeout, func() (bool, string) { return !rest.list(t).Members[1].Connected, "node 2 is connected" })
	rest.refuses(t, shrink+" --wait 500ms", "given up after 500ms: node 2 stays and is not connected", "waiting: node 2")
	if l := rest.list(t); len(l.Members) != 4 {
		t.Fatalf("%+v", l)
	}
	all[1].s.PeerInsecure = true // of the name on record
	all[1].start()
	all[1].ready()
	all.does(t, "leader transfer 4", "node 4 leads")
	all.does(t, shrink, "node 1 2 3")
	all[:3].roles(t, "1 voter, 2 voter, 3 voter")
}
