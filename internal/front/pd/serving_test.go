package pd_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/pd"
)

// owner is a backend that has timelines, and notes of which ones it was asked for timestamps.
type owner struct {
	*backend
	table
	asked []string
}

func (o *owner) Submit(b *front.Batch) {
	o.asked = append(o.asked, b.Timeline)
	o.backend.Submit(b)
}

// openOf opens a call of PD's service for timestamps.
func openOf(t *testing.T, o *owner, groups string) *caller {
	t.Helper()
	c := &caller{t: t}
	c.call = pd.New(pd.Config{Status: o.Status, Groups: openGroups(t, groups)}).Open("/tsopb.TSO/Tso", o, access.Of(nil), c)
	return c
}

// askOf is a request of a keyspace, whose client takes it to be in group 77.
func askOf(keyspace, count uint64) []byte {
	var header []byte
	for number, n := range map[protowire.Number]uint64{1: testCluster, 2: 5, 3: keyspace, 4: 77} {
		header = protowire.AppendVarint(protowire.AppendTag(header, number, protowire.VarintType), n)
	}
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), header)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), count)
	return grpc.EndFrame(append(grpc.BeginFrame(nil), b...), 0)
}

// groupsOf returns the keyspaces and the groups of the answers.
func (c *caller) groupsOf() (list [][2]uint64) {
	c.t.Helper()
	for rest := c.out; len(rest) > 0; {
		message, after, err := grpc.ParseFrame(rest)
		if err != nil || message == nil {
			c.t.Fatalf("the output has no message: %v", err)
		}
		rest = after
		var of [2]uint64
		_ = grpc.EachField(message, func(f grpc.Field) error {
			if !f.Is(1, protowire.BytesType) {
				return nil
			}
			return grpc.EachField(f.Bytes, func(f grpc.Field) error {
				for i, number := range []protowire.Number{3, 4} {
					if f.Is(number, protowire.VarintType) {
						of[i] = f.N
					}
				}
				return nil
			})
		})
		list = append(list, of)
	}
	return list
}

const twoGroups = `{"groups": [{"id": 3, "keyspaces": ["100-199"]}, {"id": 4, "keyspaces": ["100-149", "300"]}]}`

func TestGroupTso_EachKeyspaceHasTheTimelineOfItsGroup(t *testing.T) {
	o := &owner{newBackend(), table{"pd/3": {NodeID: 1}, "pd/4": {NodeID: 1}}, nil}
	c := openOf(t, o, twoGroups)
	c.send(slices.Concat(askOf(100, 1), askOf(100, 2), askOf(150, 1), askOf(300, 3), askOf(7, 1), askOf(0, 1)))
	want := [][2]uint64{{100, 3}, {100, 3}, {150, 3}, {300, 4}, {7, 0}, {0, 0}}
	if got := c.groupsOf(); !slices.Equal(got, want) {
		t.Errorf("keyspaces and groups %v, want %v", got, want)
	}
	if asked := []string{"pd/3", "pd/3", "pd/4", "", ""}; !slices.Equal(o.asked, asked) {
		t.Errorf("asked for %q, want %q: what shares a request is of one keyspace", o.asked, asked)
	}
	c.last = true
	if c.Resume(); c.end != io.EOF {
		t.Errorf("the end is %v", c.end)
	}
}

// A call stays open when its keyspace gets another group.
func TestGroupTso_FollowsASplit(t *testing.T) {
	o := &owner{newBackend(), table{"pd/3": {NodeID: 1}}, nil}
	c := openOf(t, o, twoGroups)
	c.send(askOf(100, 1))
	o.table["pd/3"], o.table["pd/4"] = front.TimelineState{Bound: 9}, front.TimelineState{NodeID: 1, Base: 9}
	c.send(askOf(100, 1))
	if got := c.groupsOf(); !slices.Equal(got, [][2]uint64{{100, 3}, {100, 4}}) || c.end != nil {
		t.Errorf("keyspaces and groups %v, %v", got, c.end)
	}
}

// The words of each are among those by which clients of PD look for another server.
func TestGroupTso_RefusesWhatItDoesNotServe(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		have     table
		request  []byte
		code     isotone.Code
		want     string
		answered int
	}{
		"another node owns it":      {err: isotone.ErrNotLeader, have: table{"pd/3": {NodeID: 2}}, request: askOf(100, 1), code: isotone.CodeNotLeader, want: "is not leader"},
		"nobody owns it":            {err: isotone.ErrNoLeader, have: table{"pd/3": {}}, request: askOf(100, 1), code: isotone.CodeNoLeader, want: "is not leader"},
		"sealed in the meantime":    {err: isotone.ErrNotFound, have: table{"pd/3": {NodeID: 1}}, request: askOf(100, 1), code: isotone.CodeNoLeader, want: "is not served"},
		"over its quota":            {err: isotone.ErrQuotaExceeded, have: table{"pd/3": {NodeID: 1}}, request: askOf(100, 1), code: isotone.CodeQuotaExceeded, want: isotone.ErrQuotaExceeded.Error()},
		"there is no such timeline": {request: askOf(100, 1), code: isotone.CodeNoLeader, want: "group 3 is not served: there is no timeline pd/3"},
		"not above the former one":  {have: table{"pd/3": {Bound: 9}, "pd/4": {NodeID: 1, Base: 8}}, request: askOf(100, 1), code: isotone.CodeNoLeader, want: "group 4 is not served"},
		"nothing follows":           {have: table{"pd/3": {Bound: 9}}, request: askOf(199, 1), code: isotone.CodeNoLeader, want: "keyspace 199 is not served"},
		"no count":                  {have: table{"pd/3": {}}, request: askOf(100, 0), code: isotone.CodeInvalidArgument, want: "want 1 to 131072", answered: 1},
		"no protobuf":               {request: []byte("\x00\x00\x00\x00\x01\xff"), code: isotone.CodeInvalidArgument, want: "protobuf", answered: 1},
		"half a header":             {request: []byte("\x00\x00\x00\x00\x03\x0a\x01\x18"), code: isotone.CodeInvalidArgument, want: "protobuf", answered: 1},
	} {
		o := &owner{newBackend(), c.have, nil}
		o.err = c.err
		one := openOf(t, o, twoGroups)
		if c.answered > 0 {
			one.send(askOf(7, 1)) // what comes before is answered
		}
		one.send(c.request)
		if got := one.groupsOf(); len(got) != c.answered || front.ErrorOf(one.end).Code != c.code || !strings.Contains(one.end.Error(), c.want) {
			t.Errorf("%s: %d answers, and %v; want %d, and %s with %q", name, len(got), one.end, c.answered, c.code, c.want)
		}
	}
}

// A user that may use some timelines gets those of its keyspaces among them, and in place of group 0 what it is bound to.
func TestGroupTso_UsersHaveTheTimelinesThatTheyMayUse(t *testing.T) {
	control := openUsers(t, `{"users": {"bound": {"roles": ["timestamps"], "timeline": "a"}, "tenant": {"roles": ["timestamps"], "timelines": ["pd/3"]}, "free": {"roles": ["timestamps"]}}}`)
	for user, want := range map[string]map[uint64]string{
		"bound":  {100: "forbidden", 7: "a"},
		"tenant": {100: "pd/3", 7: "forbidden"},
		"free":   {100: "pd/3", 7: ""},
	} {
		for keyspace, order := range want {
			o := &owner{newBackend(), table{"pd/3": {NodeID: 1}, "a": {NodeID: 1}}, nil}
			c := &caller{t: t}
			session := control.Request(netip.MustParseAddr("10.0.0.1"), chainsOf(user), true)
			c.call = pd.New(pd.Config{Status: o.Status, Groups: openGroups(t, twoGroups)}).Open("/tsopb.TSO/Tso", o, session, c)
			c.send(askOf(keyspace, 1))
			got := "forbidden"
			if len(o.asked) > 0 {
				got = o.asked[0]
			}
			if got != order || (order == "forbidden") != errors.Is(c.end, isotone.ErrForbidden) {
				t.Errorf("%s, keyspace %d: %q and %v, want %q", user, keyspace, got, c.end, order)
			}
		}
	}
}

// Without keyspace groups, and at loops that cannot tell timelines apart, PD's service for timestamps is not there.
func TestGroupTso_IsOnlyThereWithGroups(t *testing.T) {
	o := &owner{newBackend(), table{}, nil}
	if pd.New(pd.Config{Status: o.Status}).Open("/tsopb.TSO/Tso", o, access.Of(nil), nil) != nil {
		t.Error("it is there without groups")
	}
	if pd.New(pd.Config{Status: o.Status, Groups: openGroups(t, twoGroups)}).Open("/tsopb.TSO/Tso", o.backend, access.Of(nil), nil) != nil {
		t.Error("it is there without timelines")
	}
}

// PD's own Tso answers what it always has, also with a header of a later version, in which the fields of keyspaces are others.
func TestTso_IsTheDefaultOrderWithGroups(t *testing.T) {
	with, without := &owner{newBackend(), table{"pd/3": {NodeID: 1}}, nil}, newBackend()
	text := slices.Concat(ask(1), askOf(100, 2), ask(10_000))
	c := &caller{t: t}
	c.call = pd.New(pd.Config{Status: with.Status, Groups: openGroups(t, twoGroups)}).Open("/pdpb.PD/Tso", with, access.Of(nil), c)
	c.send(text)
	d := open(t, without, pd.Config{})
	d.send(text)
	if !bytes.Equal(c.out, d.out) || len(c.out) == 0 || with.batches != 1 || with.asked[0] != "" || errors.Join(c.end, d.end) != nil {
		t.Errorf("got %x by %q, want %x", c.out, with.asked, d.out)
	}
}
