package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// sized returns a message from node 1 to node 2 with size bytes of protobuf.
func sized(t testing.TB, size int) *raftpb.Message {
	t.Helper()
	m := appendOf(1, 2, size)
	data := m.Entries[0].Data
	for i := range data {
		data[i] = byte(i >> 12)
	}
	for proto.Size(m) > size {
		m.Entries[0].Data = data[:len(m.Entries[0].Data)-1]
	}
	if proto.Size(m) != size {
		t.Fatalf("no message has %d bytes", size)
	}
	return m
}

// sent returns the frames of a message of node 1 for node 2.
func sent(t testing.TB, m *raftpb.Message, frameMax int) []flatFrame {
	t.Helper()
	s := new(NewCodec(1, Hello{NodeID: 2}))
	s.SetFrameMax(frameMax)
	s.OnUnsendable(func(_ *raftpb.Message, err error) { t.Fatal(err) })
	return framesOf(t, s.Append(nil, m))
}

func framesOf(t testing.TB, b []byte) []flatFrame {
	t.Helper()
	var d Decoder
	d.Feed(b)
	frames, err := drain(&d)
	if err != nil || len(d.rest) > 0 {
		t.Fatalf("%d frames, then %d bytes, %v", len(frames), len(d.rest), err)
	}
	return frames
}

// receive has node 2 parse b in random pieces.
func receive(rng *rand.Rand, b []byte) (c *Codec, msgs []*raftpb.Message, err error) {
	c = new(NewCodec(2, Hello{NodeID: 1}))
	cut(rng, b, func(piece []byte) bool {
		mine := bytes.Clone(piece)
		msgs, err = c.Parse(msgs, mine)
		clear(mine) // it may not rely on it any more
		return err == nil
	})
	return c, msgs, err
}

// pinged returns frames with others between them that are no messages.
func pinged(frames []flatFrame) (b []byte) {
	for _, f := range frames {
		b = AppendClock(AppendPing(append(b, frameOf(f.kind, f.payload)...)), 1)
	}
	return b
}

func TestParts_ArriveAsOneMessage(t *testing.T) {
	const room = FrameSizeMax - typeSize - checksumSize
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1000, room - 1, room, room + 1, 4<<20 - 1, 4 << 20, 4<<20 + 1, 5 << 20, 8<<20 + 12345, MessageSizeMax - 1, MessageSizeMax} {
		m := sized(t, size)
		frames := sent(t, m, 0)
		if whole := len(frames) == 1 && frames[0].kind == FrameMessage; whole != (size <= room) {
			t.Errorf("%d bytes: %d frames, the first of type %d", size, len(frames), frames[0].kind)
		}
		for i, f := range frames {
			if len(frames) > 1 && (len(f.payload) > partSizeMax || (f.kind == FrameLastPart) != (i == len(frames)-1) || f.kind < frameOptional) {
				t.Errorf("%d bytes: frame %d of %d has type %d and %d bytes", size, i, len(frames), f.kind, len(f.payload))
			}
		}
		c, msgs, err := receive(rng, append(pinged(frames), pinged(frames)...))
		if err != nil || len(msgs) != 2 || !proto.Equal(msgs[0], m) || !proto.Equal(msgs[1], m) {
			t.Errorf("%d bytes: %d messages, %v", size, len(msgs), err)
		}
		if c.parts != nil || cap(c.Decoder.store) > storeSizeMax {
			t.Errorf("%d bytes: holds %d and %d bytes after the messages", size, cap(c.parts), cap(c.Decoder.store))
		}
	}
}

func TestParts_LeaveOutMessagesThatAreTooLarge(t *testing.T) {
	s := new(NewCodec(1, Hello{NodeID: 2}))
	var dropped error
	s.OnUnsendable(func(_ *raftpb.Message, err error) { dropped = err })
	if b := s.Append([]byte("prefix"), sized(t, MessageSizeMax+1)); string(b) != "prefix" || !errors.Is(dropped, ErrFrameSize) {
		t.Errorf("%d bytes, %v", len(b), dropped)
	}
}

func TestParts_HaveTheSizeOfTheFrameLimit(t *testing.T) {
	m := sized(t, 1000)
	for _, limit := range []int{6, 7, 100, 1003, 1004, 1005} {
		frames := sent(t, m, limit)
		for i, f := range frames {
			if n := len(f.payload); n != limit-5 && i < len(frames)-1 || n > limit-5 {
				t.Errorf("limit %d: frame %d of %d has %d bytes", limit, i, len(frames), n)
			}
		}
		if want := (1000 + limit - 6) / (limit - 5); len(frames) != want {
			t.Errorf("limit %d: %d frames, want %d", limit, len(frames), want)
		}
		if _, msgs, err := receive(rand.New(rand.NewPCG(1, 3)), stream(frames)); err != nil || len(msgs) != 1 || !proto.Equal(msgs[0], m) {
			t.Errorf("limit %d: %d messages, %v", limit, len(msgs), err)
		}
	}
	if frames := sent(t, heartbeat(1, 2), 6); len(frames) != 1 || frames[0].kind != FrameHeartbeat {
		t.Errorf("a heartbeat has %d frames, the first of type %d", len(frames), frames[0].kind)
	}
}

func TestParts_RefuseWhatNobodySends(t *testing.T) {
	message := string(encoded(t, appendOf(1, 2, 10))[lengthSize+typeSize:])
	message = message[:len(message)-checksumSize]
	part := func(size int) flatFrame { return flatFrame{FramePart, string(make([]byte, size))} }
	last := flatFrame{FrameLastPart, message}
	full := slices.Repeat([]flatFrame{part(partSizeMax)}, MessageSizeMax/partSizeMax)
	foreign, err := appendMessage(nil, appendOf(1, 3, 1000), 100)
	if err != nil {
		t.Fatal(err)
	}
	for name, frames := range map[string][]flatFrame{
		"an empty part":                         {part(0)},
		"an empty last part":                    {part(1), {FrameLastPart, ""}},
		"a last part without others":            {last},
		"two last parts":                        append(sent(t, appendOf(1, 2, 100), 50), last),
		"a part above 1 MiB":                    {part(partSizeMax + 1)},
		"a last part above 1 MiB":               {part(1), {FrameLastPart, string(make([]byte, partSizeMax+1))}},
		"a part too much":                       append(full, part(1)),
		"a last part too much":                  append(full, flatFrame{FrameLastPart, "x"}),
		"a message between the parts":           {{FramePart, message[:5]}, {FrameMessage, message}},
		"a heartbeat between the parts":         {{FramePart, message[:5]}, {FrameHeartbeat, string(make([]byte, 40))}},
		"parts of no message":                   {{FramePart, "\xff"}, {FrameLastPart, "\xff"}},
		"parts that lack the first":             sent(t, sized(t, 1000), 100)[1:],
		"a message in parts to another node":    framesOf(t, foreign),
		"a frame of the handshake after a part": {part(1), {FrameReady, ""}},
	} {
		if _, msgs, err := receive(rand.New(rand.NewPCG(1, 4)), stream(frames)); !errors.Is(err, ErrProtocol) || name != "two last parts" && len(msgs) > 0 {
			t.Errorf("%s: %d messages, %v", name, len(msgs), err)
		}
	}
}

// Nothing announces the size of a message, so a part costs little more than its own bytes.
func TestParts_TakeMemoryForWhatHasArrived(t *testing.T) {
	c := newCodec()
	for arrived := 0; arrived < MessageSizeMax; {
		n := min(1+arrived/3, partSizeMax)
		if _, err := c.Parse(nil, frameOf(FramePart, string(make([]byte, n)))); err != nil {
			t.Fatal(err)
		}
		if arrived += n; arrived > MessageSizeMax-partSizeMax {
			arrived = MessageSizeMax
		}
		if cap(c.parts) > 1024+2*len(c.parts) {
			t.Fatalf("%d bytes for parts of %d", cap(c.parts), len(c.parts))
		}
	}
}

func TestHandshake_TakesNoParts(t *testing.T) {
	for _, kind := range []FrameType{FramePart, FrameLastPart} {
		h := NewAcceptor(ownHello(1), nil)
		if _, err := h.Step(Frame{kind, []byte("x")}, nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("frame type %d: %v", kind, err)
		}
	}
}

// Any sequence of parts and other frames gives the same messages and errors however it is cut, and no more memory than
// is allowed. What is sent in parts of any size arrives.
func FuzzParts(f *testing.F) {
	message := encoded(f, appendOf(1, 2, 100))
	f.Add(message[lengthSize+typeSize:len(message)-checksumSize], uint64(1), uint16(20))
	f.Add([]byte("no message"), uint64(2), uint16(6))
	f.Add([]byte(nil), uint64(3), uint16(1000))
	kinds := []FrameType{FramePart, FramePart, FramePart, FrameLastPart, FrameLastPart, FramePing, FrameMessage, FrameHeartbeat, 200}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64, frameMax uint16) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var frames []byte
		cut(rng, body, func(piece []byte) bool {
			frames = append(frames, frameOf(kinds[rng.IntN(len(kinds))], string(piece))...)
			return true
		})
		whole := new(NewCodec(2, Hello{NodeID: 1}))
		want, wantErr := whole.Parse(nil, bytes.Clone(frames))
		c, got, err := receive(rng, frames)
		if len(got) != len(want) || (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, ErrProtocol) || len(c.parts) > len(body) {
			t.Fatalf("cut up: %d messages, %v; at once: %d, %v", len(got), err, len(want), wantErr)
		}
		m := appendOf(1, 2, 0)
		m.Entries[0].Data = body
		_, got, err = receive(rng, pinged(sent(t, m, max(6, int(frameMax)))))
		if err != nil || len(got) != 1 || !proto.Equal(got[0], m) && len(body) > 0 {
			t.Fatalf("%d messages, %v", len(got), err)
		}
	})
}
