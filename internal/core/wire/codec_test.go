package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// newCodec returns the codec of node 1 from node 2.
func newCodec() *Codec { return new(NewCodec(1, Hello{NodeID: 2})) }

func TestCodec_TellsTheClockBetweenMessages(t *testing.T) {
	s := newCodec()
	var told []int64
	s.OnClock(func(now int64) { told = append(told, now) })
	clocks := []int64{1_700_000_000_000_000_000, -1, math.MinInt64, math.MaxInt64, 0}
	var wire []byte
	for _, now := range clocks {
		var err error
		if wire, err = AppendMessage(AppendPing(AppendClock(wire, now)), heartbeat(2, 1)); err != nil {
			t.Fatal(err)
		}
	}
	// The result does not depend on how the bytes are cut.
	for _, size := range []int{1, 7, len(wire)} {
		told = nil
		messages := 0
		for part := range slices.Chunk(wire, size) {
			list, err := s.Parse(nil, part)
			if err != nil {
				t.Fatal(err)
			}
			messages += len(list)
		}
		if !slices.Equal(told, clocks) || messages != len(clocks) {
			t.Errorf("parts of %d: %v and %d messages", size, told, messages)
		}
	}
	s.OnClock(nil)
	if list, err := s.Parse(nil, wire); err != nil || len(list) != len(clocks) {
		t.Errorf("without a callback: %d messages, %v", len(list), err)
	}
}

func TestCodec_RefusesAMalformedClock(t *testing.T) {
	for _, size := range []int{0, 7, 9} {
		s := newCodec()
		s.OnClock(func(now int64) { t.Errorf("told %d", now) })
		frame := sealFrame(append(openFrame(nil, FrameClock), make([]byte, size)...), 0)
		if _, err := s.Parse(nil, frame); !errors.Is(err, ErrProtocol) {
			t.Errorf("a clock of %d bytes: %v", size, err)
		}
	}
}

func TestHandshake_TakesNoClock(t *testing.T) {
	h := NewDialer(ownHello(1), 2, nil)
	if _, err := h.Start(nil); err != nil {
		t.Fatal(err)
	}
	clock := binary.BigEndian.AppendUint64(nil, 1)
	if _, err := h.Step(Frame{FrameClock, clock}, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("%v", err)
	}
}

// The list has the messages of all peers; a peer that violates the protocol loses only its
// own connection.
func TestCodec_KeepsTheMessagesOfOtherPeers(t *testing.T) {
	foreign, err := AppendMessage(nil, heartbeat(3, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"a frame of the handshake":  AppendReady(nil),
		"a malformed clock":         sealFrame(append(openFrame(nil, FrameClock), 1), 0),
		"a message of another node": foreign,
		"a heartbeat cut too short": sealFrame(append(openFrame(nil, FrameHeartbeat), 1), 0),
	} {
		others := []*raftpb.Message{heartbeat(2, 1)}
		if got, err := newCodec().Parse(others, bad); !errors.Is(err, ErrProtocol) || len(got) != len(others) {
			t.Errorf("%s: %d messages of %d are left, %v", name, len(got), len(others), err)
		}
	}
}

func TestCodec_AppendsOnlyWhatTheOtherSideTakes(t *testing.T) {
	var failed []error
	s := newCodec()
	s.OnUnsendable(func(_ *raftpb.Message, err error) { failed = append(failed, err) })
	proposal := appendOf(1, 2, 0)
	proposal.Type = raftpb.MsgProp.Enum()
	var b []byte
	for _, m := range []*raftpb.Message{proposal, appendOf(1, 2, MessageSizeMax), heartbeat(3, 2), heartbeat(1, 2)} {
		b = s.Append(b, m)
	}
	if string(b) != string(encoded(t, heartbeat(1, 2))) || len(failed) != 3 {
		t.Errorf("%d bytes, failures %v", len(b), failed)
	}
	for i, want := range []error{ErrProtocol, ErrFrameSize, ErrProtocol} {
		if !errors.Is(failed[i], want) {
			t.Errorf("failure %d: %v, want %v", i, failed[i], want)
		}
	}
}

// updates returns the codec of node 1 from node 2, and the updates it gets.
func updates() (*Codec, *[]Hello) {
	s := new(NewCodec(1, Hello{NodeID: 2, Session: 5}))
	told := &[]Hello{}
	s.OnUpdate(func(h Hello) { *told = append(*told, h) })
	return s, told
}

func TestCodec_TellsUpdates(t *testing.T) {
	two := new(NewCodec(2, Hello{NodeID: 1}))
	list := []Hello{someHello, someHello}
	list[1].Stage, list[1].Founders, list[1].ClusterID = 3, "", 77
	var wire []byte
	for _, h := range list {
		h.NodeID = 0 // is filled in
		var err error
		if wire, err = AppendMessage(two.AppendUpdate(wire, h), heartbeat(2, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 100, len(wire)} {
		s, told := updates()
		messages := 0
		for part := range slices.Chunk(wire, size) {
			got, err := s.Parse(nil, part)
			if err != nil {
				t.Fatal(err)
			}
			messages += len(got)
		}
		if !slices.Equal(*told, list) || messages != len(list) {
			t.Errorf("parts of %d: %d messages and %+v", size, messages, *told)
		}
	}
	s, _ := updates()
	s.OnUpdate(nil)
	if got, err := s.Parse(nil, wire); err != nil || len(got) != len(list) {
		t.Errorf("without a callback: %d messages, %v", len(got), err)
	}
}

func TestCodec_RefusesUpdatesOfAnybodyElse(t *testing.T) {
	of := func(change func(*Hello)) []byte {
		h := Hello{NodeID: 2, Session: 5}
		change(&h)
		return hello(t, FrameUpdate, h)
	}
	whole := of(func(*Hello) {})
	for name, wire := range map[string][]byte{
		"another node":    of(func(h *Hello) { h.NodeID = 3 }),
		"this node":       of(func(h *Hello) { h.NodeID = 1 }),
		"another process": of(func(h *Hello) { h.Session = 6 }),
		"nothing":         sealFrame(openFrame(nil, FrameUpdate), 0),
		"half a hello":    sealFrame(append(openFrame(nil, FrameUpdate), whole[lengthSize+typeSize:len(whole)/2]...), 0),
	} {
		s, told := updates()
		if _, err := s.Parse(nil, wire); !errors.Is(err, ErrProtocol) || len(*told) > 0 {
			t.Errorf("%s: %v, told %+v", name, err, *told)
		}
	}
}

// A later version may send frames of types from 128 on to any peer.
func TestCodec_SkipsOnlyOptionalFrames(t *testing.T) {
	for kind := range 256 {
		known := kind > 0 && kind <= int(FrameUpdate) || kind >= int(FrameClockAsk) && kind <= int(FrameOwnerTold)
		if known {
			continue
		}
		for _, payload := range []string{"", "of a later version"} {
			wire := sealFrame(append(openFrame(nil, FrameType(kind)), payload...), 0)
			got, err := newCodec().Parse(nil, append(wire, encoded(t, heartbeat(2, 1))...))
			if skipped := err == nil && len(got) == 1; skipped != (kind >= 128) || !skipped && !errors.Is(err, ErrProtocol) {
				t.Errorf("frame type %d with %q: %d messages, %v", kind, payload, len(got), err)
			}
		}
	}
}
