package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// CarrySizeMax bounds the payload of a FrameCarry, in bytes: the body of an operator's request, and room for the rest.
const CarrySizeMax = 128 << 10

// CarryAnswerMax bounds the body of an answer to it, in bytes.
const CarryAnswerMax = FrameSizeMax - 1<<10

// Carry is a request of an operator that a member has authenticated, on its way to the leader.
type Carry struct {
	// Who asks, for the log: the operator's name or address, and the member.
	Who string `json:"who"`
	// Method, Target (path and query) and Body are those of the HTTP request.
	Method string `json:"method"`
	Target string `json:"target"`
	Body   []byte `json:"body,omitempty"`
}

// AppendCarry appends a request to b. The answer has its nonce. The error is that the request is too large.
func AppendCarry(b []byte, nonce uint64, c *Carry) ([]byte, error) {
	payload, err := json.Marshal(c)
	if err != nil || len(payload) > CarrySizeMax-8 {
		return b, fmt.Errorf("%w: a request of %d bytes", ErrFrameSize, len(payload))
	}
	start := len(b)
	b = binary.BigEndian.AppendUint64(openFrame(b, FrameCarry), nonce)
	return sealFrame(append(b, payload...), start), nil
}

// AppendCarryAnswer appends the answer to the request with the nonce to b: the status of HTTP, and at most CarryAnswerMax
// bytes of body.
func AppendCarryAnswer(b []byte, nonce uint64, status uint16, body []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint64(openFrame(b, FrameCarryAnswer), nonce)
	return sealFrame(append(binary.BigEndian.AppendUint16(b, status), body...), start)
}

// AppendCarryGreeting appends an answer to nothing, with the nonce 0, by which this side says that it takes requests of operators.
func AppendCarryGreeting(b []byte) []byte { return AppendCarryAnswer(b, 0, 0, nil) }

func parseCarry(p []byte) (nonce uint64, c *Carry, err error) {
	if len(p) < 8 || len(p) > CarrySizeMax {
		return 0, nil, fmt.Errorf("%w: a request of an operator of %d bytes", ErrProtocol, len(p))
	}
	if err := json.Unmarshal(p[8:], &c); err != nil || c == nil {
		return 0, nil, fmt.Errorf("%w: a request of an operator that is not JSON", ErrProtocol)
	}
	return binary.BigEndian.Uint64(p), c, nil
}

func parseCarryAnswer(p []byte) (nonce uint64, status uint16, body []byte, err error) {
	if len(p) < 10 {
		return 0, 0, nil, fmt.Errorf("%w: an answer to an operator of %d bytes", ErrProtocol, len(p))
	}
	return binary.BigEndian.Uint64(p), binary.BigEndian.Uint16(p[8:]), p[10:], nil
}

// OnCarry has Parse call f with each request of an operator that the other side passes on; see [AppendCarry].
func (c *Codec) OnCarry(f func(nonce uint64, r *Carry)) { c.onCarry = f }

// OnCarryAnswer has Parse call f with each answer to a request that this side has passed on; see [AppendCarryAnswer]. The body
// is valid until f returns.
func (c *Codec) OnCarryAnswer(f func(nonce uint64, status uint16, body []byte)) { c.onCarryAnswer = f }

func (c *Codec) parseCarry(p []byte) error {
	nonce, r, err := parseCarry(p)
	if err == nil && c.onCarry != nil {
		c.onCarry(nonce, r)
	}
	return err
}

func (c *Codec) parseCarryAnswer(p []byte) error {
	nonce, status, body, err := parseCarryAnswer(p)
	if err == nil && c.onCarryAnswer != nil {
		c.onCarryAnswer(nonce, status, body)
	}
	return err
}
