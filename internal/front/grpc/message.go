package grpc

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// This file has the messages of isotone.v1 that a node reads and writes. The tests compare each with what
// google.golang.org/protobuf makes of proto/isotone/v1/isotone.proto.

// errMalformed is the error for a message that is none of protobuf.
var errMalformed = isotone.Errorf(isotone.CodeInvalidArgument, "the message is not valid protobuf of the request's type")

// Field is one field of a message: a number, or bytes, which belong to the message.
type Field struct {
	number protowire.Number
	kind   protowire.Type
	N      uint64
	Bytes  []byte
}

// Is reports whether f is the field with that number and wire type. One with another type is unknown, as in protobuf.
func (f *Field) Is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// EachField calls f with each field of a message, but for groups.
func EachField(b []byte, f func(Field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || number > protowire.MaxValidNumber {
			return errMalformed
		}
		b = b[n:]
		next := Field{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			next.N, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			next.N, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			next.Bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := f(next); err != nil {
			return err
		}
	}
	return nil
}

// count is a field "optional uint64 count".
type count struct {
	n     uint64
	given bool
}

// upTo returns the count, 1 if none is given.
func (c count) upTo(most uint64) (uint64, error) {
	switch {
	case !c.given:
		return 1, nil
	case c.n == 0 || c.n > most:
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "count %d: want a number from 1 to %d", c.n, most)
	}
	return c.n, nil
}

// parseCount reads a message that has no field but count, with number 1.
func parseCount(b []byte) (c count, err error) {
	err = EachField(b, func(f Field) error {
		if f.Is(1, protowire.VarintType) {
			c = count{f.N, true}
		}
		return nil
	})
	return c, err
}

// The values of isotone.v1.ReadMode and isotone.v1.Form.
const (
	modeDefault = 0
	modeQuorum  = 1
	modeLease   = 2
	formWide    = 0
	formU64     = 1
)

// timestampsRequest is isotone.v1.TimestampsGetRequest.
type timestampsRequest struct {
	count      count
	mode, form int32
	wideFloor  []byte
	u64Floor   uint64
	floor      protowire.Number // of the field that is set; 0: none
	timeline   []byte           // nil: none is given
}

func (r *timestampsRequest) parse(b []byte) error {
	return EachField(b, func(f Field) error {
		switch {
		case f.Is(1, protowire.VarintType):
			r.count = count{f.N, true}
		case f.Is(2, protowire.VarintType):
			r.mode = int32(f.N)
		case f.Is(3, protowire.VarintType):
			r.form = int32(f.N)
		case f.Is(4, protowire.BytesType):
			r.floor, r.wideFloor, r.u64Floor = f.number, f.Bytes, 0
		case f.Is(5, protowire.Fixed64Type):
			r.floor, r.wideFloor, r.u64Floor = f.number, nil, f.N
		case f.Is(6, protowire.BytesType):
			return r.name(f.Bytes)
		}
		return nil
	})
}

// name sets the name of the timeline, which is text.
func (r *timestampsRequest) name(b []byte) error {
	if r.timeline = b; !utf8.Valid(b) {
		return errMalformed
	}
	return nil
}

// Ask is a valid request for timestamps.
type Ask struct {
	Count uint64
	Mode  isotone.ReadMode
	U64   bool
	// Floor is zero for none.
	Floor isotone.Timestamp
	// Timeline is "" for the default order.
	Timeline string
}

// ask returns what is asked for. Its errors match isotone.ErrInvalidArgument.
func (r *timestampsRequest) ask() (a Ask, err error) {
	switch r.form {
	case formWide:
		a.Count, err = r.count.upTo(isotone.RangeCountMax)
	case formU64:
		a.U64 = true
		a.Count, err = r.count.upTo(isotone.Range64CountMax)
	default:
		err = isotone.Errorf(isotone.CodeInvalidArgument, "form %d: want FORM_UNSPECIFIED or FORM_U64", r.form)
	}
	if err != nil {
		return a, err
	}
	switch r.mode {
	case modeDefault:
	case modeQuorum:
		a.Mode = isotone.ReadQuorum
	case modeLease:
		a.Mode = isotone.ReadLease
	default:
		return a, isotone.Errorf(isotone.CodeInvalidArgument, "mode %d: want READ_MODE_QUORUM or READ_MODE_LEASE, or none", r.mode)
	}
	switch r.floor {
	case 4:
		a.Floor, err = parseTimestamp("wide_floor", r.wideFloor)
	case 5:
		a.Floor = isotone.Timestamp64(r.u64Floor).Timestamp()
	}
	if r.timeline != nil && err == nil {
		a.Timeline, err = parseTimeline(r.timeline)
	}
	return a, err
}

// parseTimeline reads the name of a timeline, which has at most the bytes of a message.
func parseTimeline(b []byte) (string, error) {
	name := string(b)
	if err := timeline.CheckName(name); err != nil {
		return "", isotone.Errorf(isotone.CodeInvalidArgument, "timeline: %v", err)
	}
	return name, nil
}

// parseTimestamp reads a field with the 16 bytes of a timestamp.
func parseTimestamp(name string, b []byte) (t isotone.Timestamp, err error) {
	if len(b) != isotone.TimestampSize {
		return t, isotone.Errorf(isotone.CodeInvalidArgument, "%s has %d bytes: want the %d of a timestamp", name, len(b), isotone.TimestampSize)
	}
	return isotone.Timestamp{Time: binary.BigEndian.Uint64(b), Index: binary.BigEndian.Uint64(b[8:])}, nil
}

// ParseAsk reads an isotone.v1.TimestampsGetRequest. Its errors match isotone.ErrInvalidArgument.
func ParseAsk(b []byte) (Ask, error) {
	var r timestampsRequest
	if err := r.parse(b); err != nil {
		return Ask{}, err
	}
	return r.ask()
}

// parseStreamed reads an isotone.v1.TimestampsStreamRequest.
func parseStreamed(b []byte) (id uint64, r timestampsRequest, err error) {
	err = EachField(b, func(f Field) error {
		switch {
		case f.Is(1, protowire.VarintType):
			id = f.N
		case f.Is(2, protowire.BytesType):
			return r.parse(f.Bytes) // a second one adds to the first, as in protobuf
		}
		return nil
	})
	return id, r, err
}

// rangeMessageMax bounds a TimestampsGetResponse.
const rangeMessageMax = 32

// AppendRange appends an isotone.v1.TimestampsGetResponse with r, which is as in [front.Batch].
func AppendRange(b []byte, r isotone.Range, u64 bool) []byte {
	if u64 {
		b = protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), uint64(front.Range64(r).First))
	} else {
		b = append(protowire.AppendTag(b, 1, protowire.BytesType), isotone.TimestampSize)
		b, _ = r.First.AppendBinary(b)
	}
	return AppendVarint(b, 3, r.Count)
}

// appendStreamed appends an isotone.v1.TimestampsStreamResponse with one of the two results, given as its message.
func appendStreamed(b []byte, id uint64, result protowire.Number, message []byte) []byte {
	b = AppendVarint(b, 1, id)
	return protowire.AppendBytes(protowire.AppendTag(b, result, protowire.BytesType), message)
}

// The results of a TimestampsStreamResponse.
const (
	resultGot   = 2
	resultError = 3
)

// AppendVarint appends a number, unless it is 0, which stands for itself.
func AppendVarint(b []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), n)
}

// AppendText appends text or bytes, unless they are empty.
func AppendText[T string | []byte](b []byte, number protowire.Number, text T) []byte {
	if len(text) == 0 {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(len(text))), text...)
}

// ParseIDs reads an isotone.v1.IdsGetRequest. Its errors match isotone.ErrInvalidArgument.
func ParseIDs(b []byte) (count uint64, err error) {
	c, err := parseCount(b)
	if err != nil {
		return 0, err
	}
	return c.upTo(front.IDsMax)
}

// AppendIDs appends an isotone.v1.IdsGetResponse.
func AppendIDs(b []byte, ids []snowflake.ID) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(8*len(ids)))
	for _, id := range ids {
		b = protowire.AppendFixed64(b, uint64(id))
	}
	return b
}

// parseNonce reads an isotone.v1.IntervalGetRequest.
func parseNonce(b []byte) (nonce uint64, err error) {
	err = EachField(b, func(f Field) error {
		if f.Is(1, protowire.Fixed64Type) {
			nonce = f.N
		}
		return nil
	})
	return nonce, err
}

// appendReading appends an isotone.v1.IntervalGetResponse.
func appendReading(b []byte, r interval.Reading, nonce uint64) []byte {
	for i, n := range [...]uint64{r.Earliest, r.Latest, r.Limit, r.Term, r.Cluster, nonce} {
		number := protowire.Number(i + 1)
		if number == 4 {
			b = AppendVarint(b, number, n)
		} else if n != 0 {
			b = protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), n)
		}
	}
	return b
}

// appendStamps appends an isotone.v1.IntervalStampResponse.
func appendStamps(b []byte, s front.Stamps) []byte {
	b = append(protowire.AppendTag(b, 1, protowire.BytesType), isotone.TimestampSize)
	b, _ = s.First.AppendBinary(b)
	return AppendVarint(b, 2, s.Count)
}

// parseWait reads an isotone.v1.IntervalWaitRequest.
func parseWait(b []byte) (isotone.Timestamp, error) {
	var given []byte
	if err := EachField(b, func(f Field) error {
		if f.Is(1, protowire.BytesType) {
			given = f.Bytes
		}
		return nil
	}); err != nil {
		return isotone.Timestamp{}, err
	}
	return parseTimestamp("timestamp", given)
}

// parseText reads a message of which only a text with number 1 matters.
func parseText(b []byte) (text string, err error) {
	err = EachField(b, func(f Field) error {
		if f.Is(1, protowire.BytesType) {
			if !utf8.Valid(f.Bytes) {
				return errMalformed
			}
			text = string(f.Bytes)
		}
		return nil
	})
	return text, err
}
