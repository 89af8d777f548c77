package wire

import (
	"errors"
	"slices"
	"testing"
)

func TestCodec_CarriesWhatOwnersAskAndAreTold(t *testing.T) {
	c := newCodec()
	var asked [][2]uint64
	var told [][3]uint64
	c.OnOwnerAsk(func(session, round uint64) { asked = append(asked, [2]uint64{session, round}) })
	c.OnOwnerTold(func(session, round, fence uint64) { told = append(told, [3]uint64{session, round, fence}) })
	b := AppendOwnerTold(AppendOwnerAsk(nil, 1<<63, 7), 1<<63, 7, 1<<62)
	for _, part := range [][]byte{b[:3], b[3:20], b[20:]} {
		if msgs, err := c.Parse(nil, part); err != nil || len(msgs) > 0 {
			t.Fatalf("%v, %v", msgs, err)
		}
	}
	if !slices.Equal(asked, [][2]uint64{{1 << 63, 7}}) || !slices.Equal(told, [][3]uint64{{1 << 63, 7, 1 << 62}}) {
		t.Errorf("asked %v, told %v", asked, told)
	}
	for name, frame := range map[string][]byte{
		"a short question": frameOf(FrameOwnerAsk, "fifteen bytes.."), "a long question": frameOf(FrameOwnerAsk, "seventeen bytes.."),
		"a short answer": frameOf(FrameOwnerTold, "sixteen bytes..."), "an empty answer": frameOf(FrameOwnerTold, ""),
	} {
		if _, err := newCodec().Parse(nil, frame); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHandshake_TakesNoQuestionOfAnOwner(t *testing.T) {
	for _, f := range []Frame{{FrameOwnerAsk, make([]byte, 16)}, {FrameOwnerTold, make([]byte, 24)}} {
		h := NewDialer(ownHello(1), 2, nil)
		if _, err := h.Start(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Step(f, nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("frame type %d: %v", f.Type, err)
		}
	}
}
