package peer

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// newStream returns the stream of node 1 from node 2.
func newStream() *Stream { return &Stream{hello: Hello{NodeID: 2}, self: 1} }

func TestStream_TellsTheClockBetweenMessages(t *testing.T) {
	s := newStream()
	var told []int64
	s.OnClock(func(now int64) { told = append(told, now) })
	clocks := []int64{1_700_000_000_000_000_000, -1, math.MinInt64, math.MaxInt64, 0}
	var wire []byte
	for _, now := range clocks {
		var err error
		if wire, err = AppendMessage(AppendPing(AppendClock(wire, now)), heartbeat(2, 1), promiseLevel); err != nil {
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

func TestStream_RefusesAMalformedClock(t *testing.T) {
	for _, size := range []int{0, 7, 9} {
		s := newStream()
		s.OnClock(func(now int64) { t.Errorf("told %d", now) })
		frame := sealFrame(append(openFrame(nil, FrameClock), make([]byte, size)...), 0)
		if _, err := s.Parse(nil, frame); !errors.Is(err, ErrProtocol) {
			t.Errorf("a clock of %d bytes: %v", size, err)
		}
	}
}

func TestHandshake_TakesNoClock(t *testing.T) {
	h := NewDialer(ownHello(1), 2, nil, Version)
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
func TestStream_KeepsTheMessagesOfOtherPeers(t *testing.T) {
	foreign, err := AppendMessage(nil, heartbeat(3, 1), promiseLevel)
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
		if got, err := newStream().Parse(others, bad); !errors.Is(err, ErrProtocol) || len(got) != len(others) {
			t.Errorf("%s: %d messages of %d are left, %v", name, len(got), len(others), err)
		}
	}
}
