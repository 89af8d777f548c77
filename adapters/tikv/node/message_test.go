package node_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tsopb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/pd"
)

// message is one of kvproto.
type message interface {
	Marshal() ([]byte, error)
	String() string
}

func wantBytes(t *testing.T, got []byte, want message) {
	t.Helper()
	text, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(text) {
		t.Errorf("got %x, want %x: %v", got, text, want)
	}
}

func TestMessage_RequestIsThatOfKvproto(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 { return random.Uint64() >> random.UintN(64) }
	for range 10_000 {
		m := &pdpb.TsoRequest{Count: uint32(number()), DcLocation: []string{"", "global", "dc-1", "ä"}[random.UintN(4)]}
		if random.UintN(4) > 0 {
			m.Header = &pdpb.RequestHeader{ClusterId: number(), SenderId: number()}
		}
		text, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := pd.ParseRequest(text)
		if want := (pd.Request{Cluster: m.GetHeader().GetClusterId(), Count: uint64(m.Count), Location: m.DcLocation}); err != nil || got != want {
			t.Fatalf("%v: got %+v, %v", m, got, err)
		}
		cut := text[:random.UintN(uint(len(text)+1))]
		_, err = pd.ParseRequest(cut)
		if wrong := new(pdpb.TsoRequest).Unmarshal(cut); (err != nil) != (wrong != nil) {
			t.Fatalf("%x: got %v, kvproto has %v", cut, err, wrong)
		}
	}
}

func TestMessage_AnswersAreThoseOfKvproto(t *testing.T) {
	const cluster = 0xfe1f0c3a9b2d4e71
	header := &pdpb.ResponseHeader{ClusterId: cluster}
	for _, counter := range []uint64{0, 1, 1<<18 - 1} {
		for _, count := range []uint64{1, 300, pd.CountMax} {
			last := isotone.NewTimestamp64(1_800_000_000_000, counter)
			wantBytes(t, pd.AppendAnswer(nil, cluster, count, last), &pdpb.TsoResponse{
				Header: header, Count: uint32(count), Timestamp: &pdpb.Timestamp{Physical: 1_800_000_000_000, Logical: int64(counter)},
			})
		}
	}
	reason := isotone.Errorf(isotone.CodeNoLeader, "a reason")
	failed := &pdpb.ResponseHeader{ClusterId: cluster, Error: &pdpb.Error{Type: pdpb.ErrorType_UNKNOWN, Message: reason.Error()}}
	wantBytes(t, pd.AppendClusterInfo(nil, cluster, nil, nil), &pdpb.GetClusterInfoResponse{Header: header, ServiceModes: []pdpb.ServiceMode{pdpb.ServiceMode_PD_SVC_MODE}})
	wantBytes(t, pd.AppendClusterInfo(nil, cluster, nil, reason), &pdpb.GetClusterInfoResponse{Header: failed})
	wantBytes(t, pd.AppendClusterInfo(nil, cluster, []string{"http://a:1", "http://b:2"}, nil),
		&pdpb.GetClusterInfoResponse{Header: header, ServiceModes: []pdpb.ServiceMode{pdpb.ServiceMode_API_SVC_MODE}, TsoUrls: []string{"http://a:1", "http://b:2"}})
	list := []*pdpb.Member{{Name: "isotone-1", MemberId: 1, ClientUrls: []string{"http://a:1"}}, {Name: "isotone-2", MemberId: math.MaxUint64, ClientUrls: []string{"http://b:2"}}}
	ours := []pd.Member{{Name: "isotone-1", ID: 1, URL: "http://a:1"}, {Name: "isotone-2", ID: math.MaxUint64, URL: "http://b:2"}}
	wantBytes(t, pd.AppendMembers(nil, cluster, ours, 1, nil), &pdpb.GetMembersResponse{Header: header, Members: list, Leader: list[1], EtcdLeader: list[1]})
	wantBytes(t, pd.AppendMembers(nil, cluster, ours, 1, reason), &pdpb.GetMembersResponse{Header: failed})
}

func TestMessage_GroupsAreThoseOfKvproto(t *testing.T) {
	const cluster = 0xfe1f0c3a9b2d4e71
	header := &tsopb.ResponseHeader{ClusterId: cluster}
	wantBytes(t, pd.AppendGroupAnswer(nil, cluster, 1<<24-1, math.MaxUint32, pd.CountMax, isotone.NewTimestamp64(1_800_000_000_000, 7)), &tsopb.TsoResponse{
		Header: &tsopb.ResponseHeader{ClusterId: cluster, KeyspaceId: 1<<24 - 1, KeyspaceGroupId: math.MaxUint32}, Count: pd.CountMax, Timestamp: &pdpb.Timestamp{Physical: 1_800_000_000_000, Logical: 7},
	})
	members := []*tsopb.KeyspaceGroupMember{{Address: "http://a:1"}, {Address: "http://b:2", IsPrimary: true}}
	wantBytes(t, pd.AppendGroup(nil, cluster, 3, []string{"http://a:1", "http://b:2"}, 1, nil),
		&tsopb.FindGroupByKeyspaceIDResponse{Header: header, KeyspaceGroup: &tsopb.KeyspaceGroup{Id: 3, Members: members}})
	reason := isotone.Errorf(isotone.CodeNoLeader, "a reason")
	wantBytes(t, pd.AppendGroup(nil, cluster, 3, []string{"http://a:1"}, 0, reason),
		&tsopb.FindGroupByKeyspaceIDResponse{Header: &tsopb.ResponseHeader{ClusterId: cluster, Error: &tsopb.Error{Type: tsopb.ErrorType_UNKNOWN, Message: reason.Error()}}})
	random := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		number := func() uint32 { return random.Uint32() >> random.UintN(32) }
		m := &tsopb.TsoRequest{Count: number(), Header: &tsopb.RequestHeader{ClusterId: uint64(number()), SenderId: uint64(number()), KeyspaceId: number(), KeyspaceGroupId: number()}}
		f := &tsopb.FindGroupByKeyspaceIDRequest{Header: m.Header, KeyspaceId: number()}
		text, err := m.Marshal()
		found, err2 := f.Marshal()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		got, err := pd.ParseRequest(text)
		if want := (pd.Request{Cluster: m.Header.ClusterId, Keyspace: m.Header.KeyspaceId, Count: uint64(m.Count)}); err != nil || got != want {
			t.Fatalf("%v: got %+v, %v", m, got, err)
		}
		if keyspace, err := pd.ParseFindGroup(found); err != nil || keyspace != f.KeyspaceId {
			t.Fatalf("%v: got %d, %v", f, keyspace, err)
		}
		found = found[:random.UintN(uint(len(found)+1))]
		_, err = pd.ParseFindGroup(found)
		if wrong := new(tsopb.FindGroupByKeyspaceIDRequest).Unmarshal(found); (err != nil) != (wrong != nil) {
			t.Fatalf("%x: got %v, kvproto has %v", found, err, wrong)
		}
	}
}
