package oracle_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/golden"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/timeline"
)

// The golden set has every command, snapshot and member record that a version ever
// wrote. A later one reads them, and makes the same of them.

const goldenTime = 1_790_000_000_000 // milliseconds

var (
	snowflakes = oracle.Space{TimeBits: 41, DatacenterBits: 5, WorkerBits: 5, SequenceBits: 12, Epoch: 1288834974657}
	longAddr   = strings.Repeat("x", 250) + ":65535"
	largest    = oracle.Member{
		ID: math.MaxUint64, PeerAddr: longAddr, ClientAddr: longAddr,
		Incarnation: math.MaxUint64, Boot: math.MaxUint64, Session: math.MaxUint64, Durable: math.MaxUint64,
	}
	someMembers = []oracle.Member{
		{ID: 1, PeerAddr: "10.0.0.1:60001", ClientAddr: "10.0.0.1:8080", Incarnation: 0x1111, Boot: 3, Session: 0xA1, Durable: 400},
		{ID: 2, PeerAddr: "node2.example:60001", ClientAddr: "node2.example:8080", Incarnation: 0x2222, Boot: 1, Session: 0xA2},
		{ID: 9, PeerAddr: "[::1]:60001"},
	}
)

func goldenCommands() map[string]oracle.Command {
	all := map[string]oracle.Command{
		"reserve":      {Kind: oracle.KindReserve, Target: goldenTime * 1e6, Durable: []oracle.Durable{{ID: 1, Index: 400}, {ID: 2, Index: 399}}},
		"reserve-bare": {Kind: oracle.KindReserve, Target: goldenTime*1e6 + 1},
		"reserve-zero": {Kind: oracle.KindReserve},
		"register": {Kind: oracle.KindRegister, Member: oracle.Member{
			ID: 2, ClientAddr: "10.0.0.2:8080", Incarnation: 0x2222, Boot: 4, Session: 0xB2,
		}},
		"register-silent": {Kind: oracle.KindRegister, Member: oracle.Member{ID: 3, Incarnation: 1, Boot: 1, Session: 1}},
		"register-max":    {Kind: oracle.KindRegister, Member: largest},
		"lease": {Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
			Space: snowflakes, Node: 1, Session: 0xA1, Slots: 4, Fixed: oracle.AnyWorker, From: goldenTime, Until: goldenTime + 10_000,
		}},
		"lease-fixed-0": {Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
			Space: snowflakes, Node: 2, Session: 0xA2, Slots: 1, Fixed: 0, From: goldenTime, Until: goldenTime + 10_000,
		}},
		"lease-fixed-1023": {Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
			Space: space, Node: 2, Session: 0xA2, Slots: 1, Fixed: 1023, From: goldenTime, Until: goldenTime + 1,
		}},
		"lease-client": {Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
			Space: snowflakes, Session: 0xC1, Slots: 1, Fixed: oracle.AnyWorker, From: goldenTime, Until: goldenTime + 3_600_000,
		}},
		"lease-max": {Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
			Space: oracle.Space{TimeBits: 255, DatacenterBits: 255, WorkerBits: 255, SequenceBits: 255, Epoch: math.MaxInt64},
			Node:  math.MaxUint64, Session: math.MaxUint64, Slots: 255, Fixed: math.MaxUint16 - 1, From: math.MaxUint64, Until: math.MaxUint64,
		}},
		"release": {Kind: oracle.KindRelease, Release: oracle.Release{
			Node: 1, Session: 0xA1, Used: []oracle.Used{{Worker: 0, Start: goldenTime, Next: goldenTime + 500}, {Worker: 31, Start: goldenTime + 1}},
		}},
		"reserve-digest": {Kind: oracle.KindReserve, Target: goldenTime * 1e6, Durable: []oracle.Durable{{ID: 1, Index: 400}}, Digest: oracle.Digest{Index: 399, Sum: 0xD1}},
		"register-level": {Kind: oracle.KindRegister, Member: oracle.Member{
			ID: 2, ClientAddr: "10.0.0.2:8080", Incarnation: 0x2222, Boot: 4, Session: 0xB2, Level: 1,
		}},
		"register-configured": {Kind: oracle.KindRegister, Member: oracle.Member{
			ID: 2, PeerAddr: "10.0.0.2:60001", ClientAddr: "10.0.0.2:8080", Incarnation: 0x2222, Boot: 4, Session: 0xB2, Level: 1, Configured: "10.0.0.2:60001",
		}},
		"level":           {Kind: oracle.KindLevel, Level: 1},
		"update":          {Kind: oracle.KindUpdate, Member: oracle.Member{ID: 3, PeerAddr: "10.0.1.3:60001", ClientAddr: "10.0.1.3:8080"}},
		"update-peer":     {Kind: oracle.KindUpdate, Member: oracle.Member{ID: oracle.MemberID(3, 2), PeerAddr: longAddr}},
		"revoke":          {Kind: oracle.KindRevoke, Revoke: oracle.Revocation{Worker: 31, Start: goldenTime}},
		"revoke-max":      {Kind: oracle.KindRevoke, Revoke: oracle.Revocation{Worker: math.MaxUint16, Start: math.MaxUint64}},
		"floor":           {Kind: oracle.KindFloor, Target: goldenTime * 1e6},
		"release-nothing": {Kind: oracle.KindRelease, Release: oracle.Release{Session: 0xC1}},
		"reserve-shared":  {Kind: oracle.KindReserve, Target: goldenTime * 1e6, Digest: oracle.Digest{Index: 399, Sum: 0xD1}, Shared: goldenTime*1e6 - 1},
	}
	for name, c := range map[string]timeline.Command{
		"grant": {Kind: timeline.KindGrant, Target: goldenTime * 1e6, Grants: []timeline.Grant{{Group: "h001", Member: 1, Session: 0xA1}, {Group: "eu", Member: 2, Session: 0xA2, Replaces: 40}}},
		"create": {Kind: timeline.KindCreate, Target: goldenTime * 1e6, Creations: []timeline.Creation{
			{Name: "orders"}, {Name: "tenant-7/orders", Group: "eu", Above: goldenTime * 1e6, Quota: timeline.Quota{Requests: 100, Timestamps: 1000}},
		}},
		"delete":    {Kind: timeline.KindDelete, Name: "orders", ID: 41},
		"move":      {Kind: timeline.KindMove, Name: "orders", Group: "eu"},
		"floor":     {Kind: timeline.KindFloor, Name: "orders", Time: goldenTime * 1e6},
		"seal":      {Kind: timeline.KindSeal, Name: "orders"},
		"quota":     {Kind: timeline.KindQuota, Name: "orders", Quota: timeline.Quota{Requests: 1}},
		"make":      {Kind: timeline.KindMake, Group: "eu", Prefer: []uint64{3, 1}},
		"drop":      {Kind: timeline.KindDrop, Group: "eu"},
		"lease-on":  {Kind: timeline.KindLeaseOn, Group: "eu"},
		"lease-off": {Kind: timeline.KindLeaseOff, Group: "eu", Lease: 43},
		"lease-end": {Kind: timeline.KindLeaseEnd, Group: "eu", Lease: 43},
	} {
		all["timeline-"+name] = oracle.Command{Kind: oracle.KindTimeline, Timeline: c}
	}
	reserve := oracle.Command{Kind: oracle.KindReserve, Target: math.MaxUint64}
	for i := range uint64(256) {
		reserve.Durable = append(reserve.Durable, oracle.Durable{ID: i + 1, Index: math.MaxUint64 - i})
	}
	release := oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{Node: math.MaxUint64, Session: math.MaxUint64}}
	for i := range uint16(oracle.SlotsMax) {
		release.Release.Used = append(release.Release.Used, oracle.Used{Worker: math.MaxUint16 - i, Start: math.MaxUint64, Next: math.MaxUint64})
	}
	all["reserve-max"], all["release-max"] = reserve, release
	all["hold"] = oracle.Command{Kind: oracle.KindHold, Holds: []oracle.HoldChange{
		{Kind: oracle.HoldClaim, Hold: oracle.Hold{Name: "shop/nightly", Session: 0x5E551, Token: goldenTime << 18, TTL: 3 * time.Second, Value: "10.0.0.1:80"}},
		{Kind: oracle.HoldClaim, Hold: oracle.Hold{Name: "x", Session: math.MaxUint64, Token: math.MaxUint64, TTL: oracle.HoldTTLMax}},
		{Kind: oracle.HoldRelease, Hold: oracle.Hold{Name: "y", Token: 7}},
	}}
	return all
}

func goldenStates() map[string]oracle.State {
	timelines := oracle.State{Level: 2, ClusterID: 7, Ceiling: goldenTime * 1e6, Members: someMembers}
	for i, name := range []string{"create", "make", "grant", "floor", "quota", "lease-on"} {
		timelines.Apply(uint64(40+i), goldenCommands()["timeline-"+name])
	}
	holds := oracle.State{Level: oracle.HoldLevel, ClusterID: 7, Ceiling: goldenTime * 1e6, Members: someMembers}
	holds.Apply(40, goldenCommands()["hold"])
	return map[string]oracle.State{
		"timelines": timelines,
		"holds":     holds,
		"nothing":   {},
		"bootstrapped": {Members: []oracle.Member{
			{ID: 1, PeerAddr: "10.0.0.1:60001"}, {ID: 2, PeerAddr: "10.0.0.2:60001"}, {ID: 3, PeerAddr: "10.0.0.3:60001"},
		}},
		"running": {ClusterID: 0x0123456789ABCDEF, Ceiling: goldenTime * 1e6, Members: someMembers},
		"max":     {ClusterID: math.MaxUint64, Ceiling: oracle.CeilingMax, Members: []oracle.Member{{ID: 1}, largest}},
		"records": {Level: 1, ClusterID: 0x0123456789ABCDEF, Ceiling: goldenTime * 1e6, Members: []oracle.Member{
			{ID: 1, PeerAddr: "10.0.0.1:60001", ClientAddr: "10.0.0.1:8080", Incarnation: 0x1111, Boot: 3, Session: 0xA1, Durable: 400, Level: 1},
			{ID: 2, PeerAddr: "10.0.0.2:60001", Incarnation: 0x2222},
		}},
		"records-workers": {Level: 1, ClusterID: 7, Ceiling: goldenTime * 1e6, Members: []oracle.Member{largest}, Space: snowflakes, Workers: []oracle.WorkerLease{
			{Worker: 0, Node: 1, Session: 0xA1, Start: goldenTime, End: goldenTime + 10_000},
		}},
		"members": {Level: 1, ClusterID: 7, Ceiling: goldenTime * 1e6, Members: []oracle.Member{
			{ID: 1, PeerAddr: "10.0.0.1:60001", ClientAddr: "10.0.1.1:8080", Incarnation: 0x1111, Boot: 3, Session: 0xA1, Level: 1, Advertised: "10.0.0.1:8080"},
			{ID: 3, PeerAddr: "10.0.0.3:60001", Incarnation: 0x3333},
			{ID: oracle.MemberID(3, 1), PeerAddr: "10.0.0.4:60001", Promote: true, Replaces: 3},
		}, Removed: []uint64{oracle.MemberID(2, 7), 4}},
		"restored": {Level: 1, ClusterID: 7, Ceiling: goldenTime * 1e6, Members: someMembers[2:], Space: snowflakes,
			Workers: []oracle.WorkerLease{{Worker: 0, Start: goldenTime - 5, End: goldenTime}},
			Fence:   oracle.Fence{Members: goldenTime + 11_001, Clients: goldenTime + 7_200_001}},
		"revoked": {Level: 1, ClusterID: 7, Ceiling: goldenTime * 1e6, Members: someMembers, Space: snowflakes, Workers: []oracle.WorkerLease{
			{Worker: 1, Slot: 3, Node: 1, Session: 0xA1, Start: goldenTime, End: goldenTime + 10_000, Revoked: true},
			{Worker: 2, Fixed: true, Node: 2, Session: 0xA2, Start: 1, End: 2, Revoked: true},
			{Worker: 300, Session: 0xC1, Start: goldenTime, End: goldenTime + 3_600_000, Revoked: true},
		}},
		"space": {ClusterID: 7, Ceiling: goldenTime * 1e6, Members: someMembers, Space: snowflakes},
		"workers": {ClusterID: 7, Ceiling: goldenTime * 1e6, Members: someMembers, Space: snowflakes, Workers: []oracle.WorkerLease{
			{Worker: 0, Node: 1, Session: 0xA1, Start: goldenTime, End: goldenTime + 10_000},
			{Worker: 1, Slot: 3, Node: 1, Session: 0xA1, Start: goldenTime, End: goldenTime + 10_000},
			{Worker: 2, Session: 0xC1, Start: goldenTime, End: goldenTime + 3_600_000}, // a client's
			{Worker: 7, Start: goldenTime, End: goldenTime + 1},                        // given back
			{Worker: 31, Fixed: true, Node: 2, Session: 0xA2, Start: 1, End: 2},
			{Worker: 1023, Slot: oracle.SlotsMax - 1, Fixed: true, Node: math.MaxUint64, Session: math.MaxUint64, Start: math.MaxInt64 - 1, End: math.MaxInt64},
		}},
	}
}

func goldenMembers() map[string]oracle.Member {
	return map[string]oracle.Member{
		"to-add": {ID: 4, PeerAddr: "10.0.0.4:60001"}, "to-remove": {ID: 4},
		"to-promote": {ID: 4, PeerAddr: "10.0.0.4:60001", Promote: true},
		"to-replace": {ID: oracle.MemberID(3, 1), PeerAddr: "10.0.0.4:60001", Promote: true, Replaces: 3},
		"whole":      someMembers[0], "max": largest,
	}
}

// goldenHistory is commands that a log may hold. What they make of a state must be the
// same for ever: members of two versions apply the same log.
func goldenHistory() []oracle.Command {
	reserve := func(ms uint64, durable ...oracle.Durable) oracle.Command {
		return oracle.Command{Kind: oracle.KindReserve, Target: ms * 1e6, Durable: durable}
	}
	register := func(id, incarnation, boot, session uint64) oracle.Command {
		return oracle.Command{Kind: oracle.KindRegister, Member: oracle.Member{
			ID: id, ClientAddr: fmt.Sprintf("10.0.0.%d:8080", id), Incarnation: incarnation, Boot: boot, Session: session,
		}}
	}
	lease := func(node, session uint64, slots uint8, fixed int, from, until uint64) oracle.Command {
		return oracle.Command{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
			Space: snowflakes, Node: node, Session: session, Slots: slots, Fixed: fixed, From: goldenTime + from, Until: goldenTime + until,
		}}
	}
	release := func(node, session uint64, used ...oracle.Used) oracle.Command {
		return oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{Node: node, Session: session, Used: used}}
	}
	revoke := func(worker uint16, start uint64) oracle.Command {
		return oracle.Command{Kind: oracle.KindRevoke, Revoke: oracle.Revocation{Worker: worker, Start: goldenTime + start}}
	}
	return []oracle.Command{
		reserve(goldenTime),
		register(1, 11, 1, 101), register(2, 22, 1, 102), register(3, 33, 1, 103), register(8, 88, 1, 108),
		reserve(goldenTime+100, oracle.Durable{ID: 1, Index: 8}, oracle.Durable{ID: 2, Index: 7}, oracle.Durable{ID: 5, Index: 7}),
		reserve(goldenTime-100, oracle.Durable{ID: 1, Index: 6}), // goes back: by a nanosecond on
		register(2, 99, 9, 109), register(2, 22, 2, 112), register(2, 22, 1, 113),
		lease(1, 101, 3, oracle.AnyWorker, 0, 10_000),
		lease(2, 102, 1, oracle.AnyWorker, 0, 10_000), // its session is over
		lease(2, 112, 1, 5, 10, 10_000),
		lease(3, 103, 1, 5, 10, 10_000), // held
		lease(0, 201, 1, oracle.AnyWorker, 20, 3_600_000),
		lease(0, 202, 1, oracle.AnyWorker, 1<<40, 1<<40+10), // far ahead
		lease(0, 203, 0, oracle.AnyWorker, 20, 30),          // contradicts itself
		lease(1, 101, 3, oracle.AnyWorker, 500, 12_000),     // renews
		release(1, 101, oracle.Used{Worker: 1, Start: goldenTime, Next: goldenTime + 600}, oracle.Used{Worker: 2, Start: 1, Next: 2}),
		release(3, 103, oracle.Used{Worker: 0, Start: goldenTime, Next: goldenTime}), // not its own
		lease(3, 103, 2, oracle.AnyWorker, 100, 10_100),
		reserve(goldenTime+20_000, oracle.Durable{ID: 3, Index: 20}),
		lease(3, 103, 2, oracle.AnyWorker, 19_000, 29_000),
		register(3, 33, 2, 113),
		lease(3, 113, 1, oracle.AnyWorker, 19_000, 29_000),
		{Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, ClientAddr: "10.0.0.1:8081", Incarnation: 11, Boot: 2, Session: 111, Level: 1}},
		{Kind: oracle.KindReserve, Target: (goldenTime + 30_000) * 1e6, Digest: oracle.Digest{Index: 5, Sum: 6}},
		{Kind: oracle.KindLevel, Level: 1},
		{Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, ClientAddr: "10.0.0.1:8081", Incarnation: 11, Boot: 3, Session: 121, Level: 1}},
		{Kind: oracle.KindUpdate, Member: oracle.Member{ID: 1, PeerAddr: "10.0.1.1:60001", ClientAddr: "10.0.1.1:8081"}},
		{Kind: oracle.KindUpdate, Member: oracle.Member{ID: 9, PeerAddr: "10.0.1.9:60001"}}, // no member
		{Kind: oracle.KindRegister, Member: oracle.Member{ID: 1, ClientAddr: "10.0.0.1:8081", Incarnation: 11, Boot: 4, Session: 122, Level: 1}},
		lease(0, 201, 1, 7, 25_000, 35_000), // not for clients
		lease(0, 201, 1, 8, 25_000, 35_000),
		lease(0, 204, 1, oracle.AnyWorker, 25_000, 35_000),
		revoke(8, 25_000), revoke(256, 25_000), revoke(9, 1), revoke(31, 0),
		lease(0, 201, 1, 8, 26_000, 36_000),                // revoked
		lease(0, 204, 1, oracle.AnyWorker, 26_000, 36_000), // revoked
		lease(0, 205, 1, oracle.AnyWorker, 26_000, 36_000),
		{Kind: oracle.KindFloor, Target: (goldenTime + 50_000) * 1e6},
		{Kind: oracle.KindFloor, Target: goldenTime},
		reserve(math.MaxUint64),
		{Kind: oracle.KindFloor, Target: math.MaxUint64},
		reserve(goldenTime),
	}
}

// replay applies commands, each behind its length, to a cluster of three.
func replay(b []byte) (any, error) {
	s := oracle.State{}
	for id := range uint64(3) {
		s.AddMember(oracle.Member{ID: id + 1, PeerAddr: fmt.Sprintf("10.0.0.%d:60001", id+1)})
	}
	for len(b) > 0 {
		size := binary.BigEndian.Uint16(b)
		c, err := oracle.DecodeCommand(b[2 : 2+size])
		if err != nil {
			return nil, err
		}
		s.Apply(0, c)
		b = b[2+size:]
	}
	return s, nil
}

func TestGolden_EveryFormatEverWrittenIsRead(t *testing.T) {
	set := golden.Open(t, "testdata/golden")
	for _, name := range sorted(goldenCommands()) {
		c := goldenCommands()[name]
		set.Keep(t, "command", name, func() ([]byte, any) { return c.Append(nil), c })
	}
	for _, name := range sorted(goldenStates()) {
		s := goldenStates()[name]
		set.Keep(t, "state", name, func() ([]byte, any) { return s.Append(nil), s })
	}
	for _, name := range sorted(goldenMembers()) {
		m := goldenMembers()[name]
		set.Keep(t, "member", name, func() ([]byte, any) { return oracle.AppendMember(nil, m), m })
	}
	set.Keep(t, "replay", "history", func() ([]byte, any) {
		var b []byte
		for _, c := range goldenHistory() {
			command := c.Append(nil)
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(command))), command...)
		}
		s, err := replay(b)
		if err != nil {
			t.Fatal(err)
		}
		return b, s
	})
	set.Check(t, "command", func(b []byte) (any, error) { return oracle.DecodeCommand(b) })
	set.Check(t, "state", func(b []byte) (any, error) { return oracle.DecodeState(b) })
	set.Check(t, "member", func(b []byte) (any, error) { return oracle.DecodeMember(b) })
	set.Check(t, "replay", replay)
}

func sorted[V any](samples map[string]V) []string {
	var names []string
	for name := range samples {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
