package pd

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/grpc"
)

// This file has the messages of pdpb and tsopb that a node reads and writes. The tests of adapters/tikv compare each with what kvproto makes.

// Request is a pdpb.TsoRequest or a tsopb.TsoRequest. The latter has a keyspace, and the group in which its client takes that to be, which does not
// matter here.
type Request struct {
	Cluster  uint64
	Keyspace uint32
	Count    uint64
	Location string
}

// ParseRequest reads a request. Its errors match isotone.ErrInvalidArgument.
func ParseRequest(b []byte) (r Request, err error) {
	err = grpc.EachField(b, func(f grpc.Field) error {
		switch {
		case f.Is(1, protowire.BytesType):
			return grpc.EachField(f.Bytes, func(f grpc.Field) error {
				switch {
				case f.Is(1, protowire.VarintType):
					r.Cluster = f.N
				case f.Is(3, protowire.VarintType):
					r.Keyspace = uint32(f.N)
				}
				return nil
			})
		case f.Is(2, protowire.VarintType):
			r.Count = uint64(uint32(f.N))
		case f.Is(3, protowire.BytesType):
			if string(f.Bytes) == globalLocation {
				r.Location = globalLocation
			} else {
				r.Location = string(f.Bytes)
			}
		}
		return nil
	})
	return r, err
}

// AppendAnswer appends a pdpb.TsoResponse: count timestamps up to last.
func AppendAnswer(b []byte, cluster, count uint64, last isotone.Timestamp64) []byte {
	return AppendGroupAnswer(b, cluster, 0, 0, count, last)
}

// AppendGroupAnswer appends a tsopb.TsoResponse, which has a keyspace and its group besides.
func AppendGroupAnswer(b []byte, cluster uint64, keyspace, group uint32, count uint64, last isotone.Timestamp64) []byte {
	var part [32]byte
	header := grpc.AppendVarint(part[:0], 1, cluster)
	b = grpc.AppendText(b, 1, grpc.AppendVarint(grpc.AppendVarint(header, 3, uint64(keyspace)), 4, uint64(group)))
	b = grpc.AppendVarint(b, 2, count)
	return grpc.AppendText(b, 3, grpc.AppendVarint(grpc.AppendVarint(part[:0], 1, last.Milli()), 2, last.Counter()))
}

// appendHeader appends a pdpb.ResponseHeader, as field 1 of each answer. A failure that is not nil has the type UNKNOWN.
func appendHeader(b []byte, cluster uint64, failure error) []byte {
	const unknown = 1 // pdpb.ErrorType_UNKNOWN
	header := grpc.AppendVarint(nil, 1, cluster)
	if failure != nil {
		header = grpc.AppendText(header, 2, grpc.AppendText(grpc.AppendVarint(nil, 1, unknown), 2, failure.Error()))
	}
	return grpc.AppendText(b, 1, header)
}

// Member is a pdpb.Member.
type Member struct {
	Name string
	ID   uint64
	URL  string
}

func (m *Member) append(b []byte, number protowire.Number) []byte {
	return grpc.AppendText(b, number, grpc.AppendText(grpc.AppendVarint(grpc.AppendText(nil, 1, m.Name), 2, m.ID), 4, m.URL))
}

// AppendMembers appends a pdpb.GetMembersResponse with a failure, or with the members and which of them leads.
func AppendMembers(b []byte, cluster uint64, members []Member, leader int, failure error) []byte {
	if b = appendHeader(b, cluster, failure); failure != nil {
		return b
	}
	for i := range members {
		b = members[i].append(b, 2)
	}
	return members[leader].append(members[leader].append(b, 3), 4)
}

// AppendClusterInfo appends a pdpb.GetClusterInfoResponse with a failure, or which says that timestamps are served by PD itself, or by a service
// of their own at these URLs, if there are any.
func AppendClusterInfo(b []byte, cluster uint64, urls []string, failure error) []byte {
	const modePD, modeAPI = 1, 2 // pdpb.ServiceMode_PD_SVC_MODE, API_SVC_MODE
	if b = appendHeader(b, cluster, failure); failure != nil {
		return b
	}
	if urls == nil {
		return grpc.AppendText(b, 2, []byte{modePD}) // packed
	}
	b = grpc.AppendText(b, 2, []byte{modeAPI})
	for _, url := range urls {
		b = grpc.AppendText(b, 3, url)
	}
	return b
}

// ParseFindGroup reads a tsopb.FindGroupByKeyspaceIDRequest. Its errors match isotone.ErrInvalidArgument.
func ParseFindGroup(b []byte) (keyspace uint32, err error) {
	err = grpc.EachField(b, func(f grpc.Field) error {
		if f.Is(2, protowire.VarintType) {
			keyspace = uint32(f.N)
		}
		return nil
	})
	return keyspace, err
}

// AppendGroup appends a tsopb.FindGroupByKeyspaceIDResponse with a failure, or with the URLs of the servers of a group; primary is the place of
// the one that answers for it, -1 for none.
func AppendGroup(b []byte, cluster uint64, id uint32, urls []string, primary int, failure error) []byte {
	if b = appendHeader(b, cluster, failure); failure != nil {
		return b
	}
	group := grpc.AppendVarint(nil, 1, uint64(id))
	for i, url := range urls {
		member := grpc.AppendText(nil, 1, url)
		if i == primary {
			member = grpc.AppendVarint(member, 2, 1)
		}
		group = grpc.AppendText(group, 4, member)
	}
	return grpc.AppendText(b, 2, group)
}
