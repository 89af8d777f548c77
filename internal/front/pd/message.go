package pd

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/grpc"
)

// This file has the messages of pdpb that a node reads and writes. The tests of adapters/tikv compare each with what kvproto makes.

// Request is a pdpb.TsoRequest.
type Request struct {
	Cluster  uint64
	Count    uint64
	Location string
}

// ParseRequest reads a request. Its errors match isotone.ErrInvalidArgument.
func ParseRequest(b []byte) (r Request, err error) {
	err = grpc.EachField(b, func(f grpc.Field) error {
		switch {
		case f.Is(1, protowire.BytesType):
			return grpc.EachField(f.Bytes, func(f grpc.Field) error {
				if f.Is(1, protowire.VarintType) {
					r.Cluster = f.N
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
	var part [32]byte
	b = grpc.AppendText(b, 1, grpc.AppendVarint(part[:0], 1, cluster))
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

// AppendClusterInfo appends a pdpb.GetClusterInfoResponse with a failure, or which says that timestamps are served by PD itself, and
// not by a service of their own.
func AppendClusterInfo(b []byte, cluster uint64, failure error) []byte {
	const modePD = 1 // pdpb.ServiceMode_PD_SVC_MODE
	if b = appendHeader(b, cluster, failure); failure != nil {
		return b
	}
	return grpc.AppendText(b, 2, []byte{modePD}) // packed
}
