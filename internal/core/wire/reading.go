package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/isotone/isotone/internal/core/interval"
)

// AppendClockAsk appends a question for the cluster clock to b. The answer has its nonce.
func AppendClockAsk(b []byte, nonce uint64) []byte {
	start := len(b)
	return sealFrame(binary.BigEndian.AppendUint64(openFrame(b, FrameClockAsk), nonce), start)
}

// AppendClockTold appends a reading of the cluster clock to b, the answer to the question with the
// nonce.
func AppendClockTold(b []byte, nonce uint64, r interval.Reading) []byte {
	start := len(b)
	return sealFrame(r.Append(openFrame(b, FrameClockTold), nonce), start)
}

// parseClockAsk reads the payload of a FrameClockAsk.
func parseClockAsk(p []byte) (nonce uint64, err error) {
	if len(p) != 8 {
		return 0, fmt.Errorf("%w: a question for the clock of %d bytes", ErrProtocol, len(p))
	}
	return binary.BigEndian.Uint64(p), nil
}

// parseClockTold reads the payload of a FrameClockTold.
func parseClockTold(p []byte) (nonce uint64, r interval.Reading, err error) {
	r, nonce, err = interval.Decode(p)
	if err != nil {
		return 0, r, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nonce, r, nil
}
