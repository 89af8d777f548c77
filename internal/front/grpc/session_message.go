package grpc

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has the messages of Sessions, Locks and Frontiers.

// The actions of isotone.v1.SessionsConnectRequest.
const (
	actionBind    = 5
	actionClose   = 6
	actionAcquire = 7
	actionCancel  = 8
	actionRelease = 9
	actionTake    = 10
)

// The results of isotone.v1.SessionsConnectResponse.
const (
	whatAnswer     = 2
	whatError      = 3
	whatQueued     = 4
	whatGranted    = 5
	whatReleased   = 6
	whatSeal       = 7
	whatFenced     = 8
	whatExpired    = 9
	whatSuperseded = 10
)

// text returns a field of text.
func (f *Field) text() (string, error) {
	if !utf8.Valid(f.Bytes) {
		return "", errMalformed
	}
	return string(f.Bytes), nil
}

// stampText is a stamp, as it came, in a group, or two of them.
type stampText struct {
	group     string
	low, high []byte
}

// parse reads an isotone.v1.GroupStamp, or an isotone.v1.SessionGroup.
func (s *stampText) parse(b []byte) error {
	return EachField(b, func(f Field) (err error) {
		switch {
		case f.Is(1, protowire.BytesType):
			s.group, err = f.text()
		case f.Is(2, protowire.BytesType):
			s.low = f.Bytes
		case f.Is(3, protowire.BytesType):
			s.high = f.Bytes
		}
		return err
	})
}

// action is what a request asks for beside what it says of stamps. Each kind has some of the fields.
type action struct {
	kind      protowire.Number // 0: none
	name      string           // of the lock, or of the group
	value     string           // of the lock, or the label
	try       bool
	ticket    []byte
	number    uint64 // the token, or the session
	epoch     uint32
	ttl       uint32
	linger    uint32
	hasLinger bool
	groups    []stampText
	count     count
	form      int32
	ahead     bool
}

// sessionAsk is isotone.v1.SessionsConnectRequest.
type sessionAsk struct {
	id                   uint64
	lows, doubts, sealed []stampText
	action               action
}

// parseSessionAsk reads a request, whose bytes belong to b.
func parseSessionAsk(b []byte) (a sessionAsk, err error) {
	err = EachField(b, func(f Field) error {
		switch {
		case f.Is(1, protowire.VarintType):
			a.id = f.N
		case f.kind != protowire.BytesType:
		case f.number == 2:
			return addStamp(&a.lows, f.Bytes)
		case f.number == 3:
			return addStamp(&a.doubts, f.Bytes)
		case f.number == 4:
			return addStamp(&a.sealed, f.Bytes)
		case f.number >= actionBind && f.number <= actionTake:
			if a.action.kind != f.number { // a second one of the same kind adds to the first, as in protobuf
				a.action = action{kind: f.number}
			}
			return EachField(f.Bytes, a.action.field)
		}
		return nil
	})
	return a, err
}

func addStamp(list *[]stampText, b []byte) error {
	var s stampText
	err := s.parse(b)
	*list = append(*list, s)
	return err
}

// field reads a field of the action.
func (a *action) field(f Field) (err error) {
	switch a.kind {
	case actionBind:
		return a.bindField(f)
	case actionTake:
		a.takeField(f)
	}
	switch {
	case a.kind == actionClose:
	case f.Is(1, protowire.BytesType):
		a.name, err = f.text()
	case a.kind == actionRelease && f.Is(2, protowire.Fixed64Type):
		a.number = f.N
	case a.kind != actionAcquire:
	case f.Is(2, protowire.VarintType):
		a.try = f.N != 0
	case f.Is(3, protowire.BytesType):
		a.value, err = f.text()
	case f.Is(4, protowire.BytesType):
		a.ticket = f.Bytes
	}
	return err
}

// bindField reads a field of isotone.v1.SessionBind.
func (a *action) bindField(f Field) (err error) {
	switch {
	case f.Is(1, protowire.Fixed64Type):
		a.number = f.N
	case f.Is(2, protowire.VarintType):
		a.epoch = uint32(f.N)
	case f.Is(3, protowire.VarintType):
		a.ttl = uint32(f.N)
	case f.Is(4, protowire.VarintType):
		a.linger, a.hasLinger = uint32(f.N), true
	case f.Is(5, protowire.BytesType):
		a.value, err = f.text()
	case f.Is(6, protowire.BytesType):
		return addStamp(&a.groups, f.Bytes)
	}
	return err
}

// takeField reads a field of isotone.v1.StampsTake that is not the group.
func (a *action) takeField(f Field) {
	switch {
	case f.Is(2, protowire.VarintType):
		a.count = count{f.N, true}
	case f.Is(3, protowire.VarintType):
		a.form = int32(f.N)
	case f.Is(4, protowire.VarintType):
		a.ahead = f.N != 0
	}
}

// request returns what is asked for. Its errors match isotone.ErrInvalidArgument.
func (a *sessionAsk) request() (q *front.SessionRequest, err error) {
	q = &front.SessionRequest{}
	for _, said := range []struct {
		field string
		from  []stampText
		to    *[]session.GroupStamp
	}{{"lows", a.lows, &q.Lows}, {"doubts", a.doubts, &q.Doubts}, {"sealed", a.sealed, &q.Sealed}} {
		for _, s := range said.from {
			at, err := parseTimestamp(said.field+".stamp", s.low)
			if err != nil {
				return q, err
			}
			*said.to = append(*said.to, session.GroupStamp{Group: s.group, Stamp: at})
		}
	}
	switch c := &a.action; c.kind {
	case actionBind:
		q.Bind, err = c.bind()
	case actionClose:
		q.Close = true
	case actionAcquire:
		q.Lock = &session.LockRequest{Op: session.LockAcquire, Name: c.name, Value: c.value}
		if c.try {
			q.Lock.Op = session.LockTry
		}
		if len(c.ticket) > 0 {
			q.Lock.Ticket, err = parseTimestamp("ticket", c.ticket)
		}
	case actionCancel:
		q.Lock = &session.LockRequest{Op: session.LockCancel, Name: c.name}
	case actionRelease:
		q.Lock = &session.LockRequest{Op: session.LockRelease, Name: c.name, Token: isotone.Timestamp64(c.number)}
	case actionTake:
		err = c.take(q)
	}
	return q, err
}

func (a *action) bind() (*session.Bind, error) {
	b := &session.Bind{ID: session.ID(a.number), Epoch: a.epoch, TTL: millis(a.ttl), Linger: millis(a.ttl), Label: a.value}
	if a.hasLinger {
		b.Linger = millis(a.linger)
	}
	for _, g := range a.groups {
		low, err := parseTimestamp("groups.low", g.low)
		if err != nil {
			return nil, err
		}
		high, err := parseTimestamp("groups.high", g.high)
		if err != nil {
			return nil, err
		}
		b.Reports = append(b.Reports, frontier.Report{Group: g.group, Low: low, High: high})
	}
	return b, nil
}

func millis(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

func (a *action) take(q *front.SessionRequest) (err error) {
	most := uint64(isotone.RangeCountMax)
	switch {
	case a.name == "":
		return isotone.Errorf(isotone.CodeInvalidArgument, "take: name the group for whose writes the stamps are")
	case a.form == formU64:
		most = isotone.Range64CountMax
	case a.form != formWide:
		return isotone.Errorf(isotone.CodeInvalidArgument, "form %d: want FORM_UNSPECIFIED or FORM_U64", a.form)
	}
	q.Group, q.Ahead, q.U64 = a.name, a.ahead, a.form == formU64
	q.Count, err = a.count.upTo(most)
	return err
}

// appendSessionAnswer appends an isotone.v1.SessionAnswer.
func appendSessionAnswer(b []byte, q *front.SessionRequest) []byte {
	for _, h := range q.Reply.Holds {
		b = appendMessage(b, 1, appendLock(nil, h.Name, h.Token))
	}
	for _, f := range q.Reply.Frontiers {
		b = appendMessage(b, 2, appendStamped(nil, f.Group, f.Stamp))
	}
	if q.Count > 0 {
		b = appendMessage(b, 3, AppendRange(nil, q.Range, q.U64))
	}
	if q.Ahead {
		b = appendStamp(b, 4, q.Reply.Bound)
	}
	return b
}

// appendTold appends an isotone.v1.SessionsConnectResponse with a message.
func appendTold(b []byte, m session.Message) []byte {
	switch m.Kind {
	case session.MessageQueued:
		return appendMessage(b, whatQueued, appendStamped(nil, m.Name, m.Ticket))
	case session.MessageGranted:
		return appendMessage(b, whatGranted, appendLock(nil, m.Name, m.Token))
	case session.MessageReleased:
		return appendMessage(b, whatReleased, appendLock(nil, m.Name, m.Token))
	case session.MessageSeal:
		return appendMessage(b, whatSeal, appendStamped(nil, m.Group, m.Through))
	case session.MessageFenced:
		return appendMessage(b, whatFenced, appendStamped(nil, m.Group, m.Low, m.Through))
	case session.MessageExpired:
		return appendMessage(b, whatExpired, nil)
	case session.MessageSuperseded:
		return appendMessage(b, whatSuperseded, nil)
	}
	return b
}

// appendMessage appends a message as a field, also an empty one.
func appendMessage(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}

// appendName appends a name. Those that other protocols have given may be no text.
func appendName(b []byte, number protowire.Number, name string) []byte {
	return AppendText(b, number, strings.ToValidUTF8(name, "\uFFFD"))
}

// appendLock appends an isotone.v1.LockGranted, or an isotone.v1.LockReleased.
func appendLock(b []byte, name string, token isotone.Timestamp64) []byte {
	return appendFixed64(appendName(b, 1, name), 2, uint64(token))
}

// appendStamped appends a message with a name and stamps.
func appendStamped(b []byte, name string, stamps ...isotone.Timestamp) []byte {
	b = appendName(b, 1, name)
	for i, s := range stamps {
		b = appendStamp(b, protowire.Number(2+i), s)
	}
	return b
}

// appendStamp appends the 16 bytes of a stamp.
func appendStamp(b []byte, number protowire.Number, s isotone.Timestamp) []byte {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), isotone.TimestampSize)
	b, _ = s.AppendBinary(b)
	return b
}

func appendFixed64(b []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), n)
}

// appendHolder appends an isotone.v1.LocksGetResponse, which is as an isotone.v1.LocksWatchResponse.
func appendHolder(b []byte, holders []front.Holder) []byte {
	for _, h := range holders {
		m := appendFixed64(nil, 1, uint64(h.Token))
		m = AppendText(appendName(m, 2, h.Value), 3, front.SessionHash(h.Session))
		b = appendMessage(b, 1, appendName(m, 4, h.Label))
	}
	return b
}
