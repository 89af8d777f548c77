package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
)

// TestTSIN_IsTSWithTheTimelineInFront, in every form, and refuses what is neither.
func TestTSIN_IsTSWithTheTimelineInFront(t *testing.T) {
	for say, want := range map[string][]string{
		"TSIN a\r\nTSIN a\r\n":                              {"a 2"},
		"tsin a 3 LEASE\r\nTS 2 TIMELINE a\r\n":             {"a 5"},
		"TS64IN a 3\r\n" + plain + "TSIN b\r\n":             {"a 3", " 1", "b 1"},
		"TSIN a 5 QUORUM FLOOR " + floor + "\r\n":           {"a 5"},
		"TSIN a TRACEPARENT " + traceparent + "\r\n":        {"a 1"},
		"MULTI\r\nTSIN a\r\nTS64IN a\r\nTSIN b\r\nEXEC\r\n": {"a 2", "b 1"},
		"ASKING\r\nTSIN a\r\n":                              {"a 1"},
	} {
		o := newOracle()
		w := newTape(t, New(Config{Backend: o}))
		w.feed([]byte(say))
		if out := w.finish(o); strings.Contains(out, "-") {
			t.Errorf("%q: %q", say, out)
		}
		if got := asked(o); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", say, got, want)
		}
	}
	for say, want := range map[string]string{
		"TSIN\r\n": "-ERR wrong number of arguments for 'tsin'", "TS64IN\r\n": "-ERR wrong number of arguments for 'ts64in'", "TSIN a b\r\n": "-ERR count", "TSIN a{b}\r\n": "-ERR timeline: ",
		"TSIN a 0\r\n": "-ERR count", "TS64IN a 262145\r\n": "-ERR count", "TSIN a TIMELINE b\r\n": "-ERR TSIN has the name", "TSIN a 1 LEASE x\r\n": "-ERR wrong number",
		"TSIN a 1 FLOOR\r\n": "-ERR FLOOR, ", "TSINN a\r\n": "-ERR unknown command", "TS64I a\r\n": "-ERR unknown command", "TSXIN a\r\n": "-ERR unknown command",
	} {
		o := newOracle()
		w := newTape(t, New(Config{Backend: o}))
		w.feed([]byte(say))
		if out := w.finish(o); !strings.HasPrefix(out, want) || len(o.batches) > 0 {
			t.Errorf("%q: %q, want %q", say, out, want)
		}
	}
}

// apart answers that another node owns the timelines, some of which are in groups of their own.
type apart struct {
	*oracle
	names []string
}

func (a *apart) Submit(b *front.Batch) {
	b.Err = &isotone.Error{Code: isotone.CodeNotLeader, Leader: "[::1]:8083"}
	b.Apart = slices.Contains(a.names, b.Timeline)
	b.Done(b)
}

// TestRedirect_NamesTheSlotThatTheClientLooksFor.
func TestRedirect_NamesTheSlotThatTheClientLooksFor(t *testing.T) {
	slot := func(word, key string) string { return fmt.Sprintf("-%s %d ::1:8083\r\n", word, timeline.Slot(key)) }
	for say, want := range map[string][2]string{ // where the leader has all slots, and where owners of timelines have them
		"TS\r\n":            {"-MOVED 0 ::1:8083\r\n", "-MOVED 0 ::1:8083\r\n"},
		"TS 5\r\nTS 6\r\n":  {"-MOVED 0 ::1:8083\r\n-MOVED 0 ::1:8083\r\n", slot("MOVED", "5") + slot("MOVED", "6")},
		"TS TIMELINE a\r\n": {"-MOVED 0 ::1:8083\r\n", slot("MOVED", "TIMELINE")},
		"TSIN a\r\n":        {slot("MOVED", "a"), slot("MOVED", "a")},
		"TSIN a 2\r\nTSIN a 3\r\nTSIN named\r\nTS64IN a\r\n":     {slot("MOVED", "a") + slot("MOVED", "a") + slot("ASK", "named") + slot("MOVED", "a"), slot("MOVED", "a") + slot("MOVED", "a") + slot("ASK", "named") + slot("MOVED", "a")},
		"ORACLE a READ\r\nORACLE named READ\r\n":                 {slot("MOVED", "a") + slot("ASK", "named"), slot("MOVED", "a") + slot("ASK", "named")},
		"TS TIMELINE named\r\nTSIN named\r\n":                    {"-MOVED 0 ::1:8083\r\n" + slot("ASK", "named"), slot("MOVED", "TIMELINE") + slot("ASK", "named")},
		"MULTI\r\nTSIN named\r\nEXEC\r\n":                        {"+OK\r\n+QUEUED\r\n" + slot("ASK", "named"), "+OK\r\n+QUEUED\r\n" + slot("ASK", "named")},
		"MULTI\r\nTSIN a\r\nEXEC\r\n":                            {"+OK\r\n+QUEUED\r\n" + slot("MOVED", "a"), "+OK\r\n+QUEUED\r\n" + slot("MOVED", "a")},
		"WORKER LEASE 5f0c3a9b2d4e7181 1795317567364 30000\r\n":  {"-MOVED 0 ::1:8083\r\n", slot("MOVED", "5f0c3a9b2d4e7181")},
		"CLUSTER KEYSLOT a\r\nCOMMAND GETKEYS TSIN tenant 5\r\n": {fmt.Sprintf(":%d\r\n*1\r\n$6\r\ntenant\r\n", timeline.Slot("a")), fmt.Sprintf(":%d\r\n*1\r\n$6\r\ntenant\r\n", timeline.Slot("a"))},
	} {
		for i, ofTimelines := range []bool{false, true} {
			o := newOracle()
			w := newTape(t, New(Config{Backend: &apart{o, []string{"named"}}, SlotsOfTimelines: ofTimelines, Lessor: elsewhere{}}))
			w.feed([]byte(say))
			if got := w.finish(o); got != want[i] {
				t.Errorf("%q, by timelines %v: %q, want %q", say, ofTimelines, got, want[i])
			}
		}
	}
}

// elsewhere is the lessor of a node that does not lead.
type elsewhere struct{}

func (elsewhere) LeaseWorker(r *front.WorkerRequest) {
	r.Err = &isotone.Error{Code: isotone.CodeNotLeader, Leader: "[::1]:8083"}
	r.Done(r)
}

// owners returns slot owners: the groups from each first one on belong to a node.
func owners(from map[int]uint64) []uint64 {
	list, now := make([]uint64, timeline.SlotGroups), uint64(0)
	for i := range list {
		if n, ok := from[i]; ok {
			now = n
		}
		list[i] = now
	}
	return list
}

// TestShards_MapEachSlotToItsOwner exactly once, and what nobody owns to the leader.
func TestShards_MapEachSlotToItsOwner(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leader uint64
		owners []uint64
		want   string
	}{
		{"without timelines", 2, nil, "2,1,3: 0-16383"},
		{"without timelines, without a leader", 0, nil, ""},
		{"nobody owns any", 2, owners(nil), "2,1,3: 0-16383"},
		{"nobody owns any, without a leader", 0, owners(nil), ""},
		{"one owns all", 2, owners(map[int]uint64{0: 1}), "1: 0-16383; 2,3: "},
		{"halves", 1, owners(map[int]uint64{0: 1, 128: 2}), "1,3: 0-8191; 2: 8192-16383"},
		{"one group in between", 1, owners(map[int]uint64{10: 3, 11: 0}), "1,2: 0-639 704-16383; 3: 640-703"},
		{"an owner without an address", 3, owners(map[int]uint64{0: 4, 200: 1}), "1: 12800-16383; 3,2: 0-12799"},
		{"an owner that is no member", 1, owners(map[int]uint64{0: 9}), "1,2,3: 0-16383"},
		{"without a leader", 0, owners(map[int]uint64{0: 2, 1: 3, 2: 0}), "2,1: 0-63 128-16383; 3: 64-127"},
	} {
		var got []string
		covered := make([]int, slots)
		for _, s := range shardsOf(&front.Status{NodeID: 1, Leader: tt.leader, LeaderAddr: statusOf(1, max(tt.leader, 1)).LeaderAddr, Members: statusOf(1, 1).Members, SlotOwners: tt.owners}, true) {
			var ids, spans []string
			for _, n := range s.nodes {
				ids = append(ids, fmt.Sprint(n.id))
			}
			for _, span := range s.spans {
				spans = append(spans, fmt.Sprintf("%d-%d", span[0], span[1]))
				for i := span[0]; i <= span[1]; i++ {
					covered[i]++
				}
			}
			got = append(got, strings.Join(ids, ",")+": "+strings.Join(spans, " "))
		}
		if text := strings.Join(got, "; "); text != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
		if tt.want != "" && slices.ContainsFunc(covered, func(n int) bool { return n != 1 }) {
			t.Errorf("%s: not every slot is there once", tt.name)
		}
	}
}

// TestShards_EachCommandTells the same.
func TestShards_EachCommandTells(t *testing.T) {
	o := newOracle()
	o.status = statusOf(1, 1)
	o.status.SlotOwners = owners(map[int]uint64{10: 2, 11: 0})
	w := newTape(t, New(Config{Backend: o, SlotsOfTimelines: true}))
	w.feed([]byte("CLUSTER SLOTS\r\nCLUSTER SHARDS\r\nCLUSTER NODES\r\nCLUSTER INFO\r\nINFO replication\r\n"))
	got := w.finish(o)
	for _, want := range []string{
		"*3\r\n*4\r\n:0\r\n:639\r\n" + slotNode("a.example", 8081, 1) + slotNode("::1", 8083, 3) + "*4\r\n:704\r\n:16383\r\n" + slotNode("a.example", 8081, 1),
		"*3\r\n:640\r\n:703\r\n" + slotNode("b.example", 8082, 2),
		"slots\r\n*4\r\n:0\r\n:639\r\n:704\r\n:16383\r\n", "slots\r\n*2\r\n:640\r\n:703\r\n",
		redisID(1) + " a.example:8081@0 myself,master - 0 0 7 connected 0-639 704-16383\n",
		redisID(3) + " ::1:8083@0 slave " + redisID(1) + " 0 0 7 connected\n", redisID(2) + " b.example:8082@0 master - 0 0 7 connected 640-703\n",
		"cluster_state:ok\r\ncluster_slots_assigned:16384\r\n", "cluster_size:2\r\n", "role:master\r\nconnected_slaves:1\r\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%q", want, got)
		}
	}
}
