package client

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/reply"
)

// This file spells requests of sessions as commands, and reads their answers and messages; see docs/resp.md.

// sessionLimits bound an answer: that to BIND has all locks of a session.
var sessionLimits = reply.Limits{Bytes: 4 << 10, Items: 64 << 10, Depth: 5}

// answer is the answer to a request of a session, other than an error.
type answer = reply.Value

func appendCall(b []byte, k *session.Call) []byte {
	var args []string
	switch {
	case k.Bind != nil:
		args = []string{
			"SESSION", "BIND", fmt.Sprintf("%016x", uint64(k.Bind.ID)), strconv.FormatUint(uint64(k.Bind.Epoch), 10),
			"TTL", strconv.FormatInt(k.Bind.TTL.Milliseconds(), 10), "LINGER", strconv.FormatInt(k.Bind.Linger.Milliseconds(), 10), "LABEL", k.Bind.Label,
		}
		for _, r := range k.Bind.Reports {
			args = append(args, "GROUP", r.Group, stampText(r.Low), stampText(r.High))
		}
	case k.Close:
		args = []string{"SESSION", "CLOSE"}
	case k.Lock != nil:
		args = lockArgs(k.Lock)
	default:
		args = keepArgs(k)
	}
	return appendCommand(b, args...)
}

func lockArgs(q *session.LockRequest) []string {
	switch q.Op {
	case session.LockCancel:
		return []string{"LOCK", "CANCEL", q.Name}
	case session.LockRelease:
		return []string{"LOCK", "RELEASE", q.Name, strconv.FormatUint(uint64(q.Token), 10)}
	}
	args := []string{"LOCK", "ACQUIRE", q.Name}
	if q.Op == session.LockAcquire {
		args = append(args, "WAIT", "0")
	}
	if q.Value != "" {
		args = append(args, "VALUE", q.Value)
	}
	if q.Ticket != (isotone.Timestamp{}) {
		args = append(args, "TICKET", stampText(q.Ticket))
	}
	return args
}

func keepArgs(k *session.Call) []string {
	args := []string{"SESSION", "KEEP"}
	for what, list := range map[string][]session.GroupStamp{"LOW": k.Lows, "DOUBT": k.Doubts, "SEALED": k.Sealed} {
		for _, x := range list {
			args = append(args, what, x.Group, stampText(x.Stamp))
		}
	}
	if k.Count > 0 {
		args = append(args, "TAKE", k.Group, strconv.FormatUint(k.Count, 10))
		if k.Ahead {
			args = append(args, "AHEAD")
		}
		if k.U64 {
			args = append(args, "U64")
		}
	}
	return args
}

// stampText returns 32 hexadecimal digits.
func stampText(t isotone.Timestamp) string {
	b, _ := t.AppendBinary(nil)
	return hex.EncodeToString(b)
}

// errSession is the error for an answer that is none.
var errSession = fmt.Errorf("%w to a request of a session", reply.ErrMalformed)

func parseStamp(text []byte) (t isotone.Timestamp, err error) {
	b, err := hex.DecodeString(string(text))
	if err != nil || t.UnmarshalBinary(b) != nil {
		return t, errSession
	}
	return t, nil
}

// readSession reads a message, or else an answer. An *isotone.Error is a refusal.
func readSession(r *bufio.Reader) (*session.Message, answer, error) {
	v, err := reply.Read(r, sessionLimits)
	var refusal reply.Error
	switch {
	case errors.As(err, &refusal):
		decoded, err := refusal.Decode()
		if err != nil {
			return nil, v, err
		}
		return nil, v, decoded
	case err != nil || v.Kind != '>':
		return nil, v, err
	}
	m, err := parseMessage(v.Items)
	return m, v, err
}

// parseMessage reads what a node pushes. One of a kind that it does not know means nothing.
func parseMessage(items []reply.Value) (*session.Message, error) {
	if len(items) < 2 || string(items[0].Text) != "session" {
		return &session.Message{}, nil
	}
	var m session.Message
	var err error
	args := items[2:]
	stamp := func(i int) isotone.Timestamp {
		t, e := parseStamp(args[i].Text)
		err = errors.Join(err, e)
		return t
	}
	token := func(i int) isotone.Timestamp64 {
		n, e := strconv.ParseUint(string(args[i].Text), 10, 64)
		err = errors.Join(err, e)
		return isotone.Timestamp64(n)
	}
	wants := map[string]int{"seal": 2, "fenced": 3, "granted": 2, "released": 2, "queued": 2}
	kind := string(items[1].Text)
	if len(args) < wants[kind] {
		return nil, errSession
	}
	switch kind {
	case "seal":
		m = session.Message{Kind: session.MessageSeal, Group: string(args[0].Text), Through: stamp(1)}
	case "fenced":
		m = session.Message{Kind: session.MessageFenced, Group: string(args[0].Text), Low: stamp(1), Through: stamp(2)}
	case "expired":
		m.Kind = session.MessageExpired
	case "superseded":
		m.Kind = session.MessageSuperseded
	case "granted":
		m = session.Message{Kind: session.MessageGranted, Name: string(args[0].Text), Token: token(1)}
	case "released":
		m = session.Message{Kind: session.MessageReleased, Name: string(args[0].Text), Token: token(1)}
	case "queued":
		m = session.Message{Kind: session.MessageQueued, Name: string(args[0].Text), Ticket: stamp(1)}
	}
	return &m, err
}

// settle sets the outcome of a request.
func settle(k *session.Call, v answer, refusal *isotone.Error) error {
	k.Reply.Outcome = session.Alive
	switch {
	case refusal == nil:
	case refusal.Code == isotone.CodeSessionExpired:
		k.Reply.Outcome = session.Expired
		return nil
	case refusal.Code == isotone.CodeNotBound:
		k.Reply.Outcome = session.Unbound
		return nil
	case refusal.Code == isotone.CodeLocked && k.Lock != nil:
		k.Reply.Outcome = session.Locked
		return nil
	default:
		k.Err = refusal
		return nil
	}
	switch {
	case k.Close:
		k.Reply.Outcome = session.Expired
	case k.Bind != nil:
		return settleBind(k, v.Items)
	case k.Lock != nil && (k.Lock.Op == session.LockAcquire || k.Lock.Op == session.LockTry):
		if len(v.Items) != 2 {
			return errSession
		}
		if token := v.Items[0].Text; token != nil {
			n, err := strconv.ParseUint(string(token), 10, 64)
			if err != nil {
				return errSession
			}
			k.Reply.Holds = []session.Hold{{Name: k.Lock.Name, Token: isotone.Timestamp64(n)}}
		}
	case k.Count > 0:
		return settleTake(k, v.Items)
	}
	return nil
}

// settleBind reads names and values.
func settleBind(k *session.Call, items []reply.Value) error {
	for ; len(items) > 1; items = items[2:] {
		for _, pair := range items[1].Items {
			if len(pair.Items) != 2 {
				return errSession
			}
			name, value := string(pair.Items[0].Text), pair.Items[1].Text
			switch string(items[0].Text) {
			case "holds":
				n, err := strconv.ParseUint(string(value), 10, 64)
				if err != nil {
					return errSession
				}
				k.Reply.Holds = append(k.Reply.Holds, session.Hold{Name: name, Token: isotone.Timestamp64(n)})
			case "frontiers":
				t, err := parseStamp(value)
				if err != nil {
					return err
				}
				k.Reply.Frontiers = append(k.Reply.Frontiers, session.GroupStamp{Group: name, Stamp: t})
			}
		}
	}
	return nil
}

// settleTake reads the first and the last stamp, and the bound if there is one.
func settleTake(k *session.Call, items []reply.Value) (err error) {
	if len(items) < 2 || k.Ahead && len(items) < 3 {
		return errSession
	}
	k.Range.Count = k.Count
	if k.Range.First, err = parseStamp(items[0].Text); err == nil && k.Ahead {
		k.Reply.Bound, err = parseStamp(items[2].Text)
	}
	return err
}
