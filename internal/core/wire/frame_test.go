package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

type flatFrame struct {
	kind    FrameType
	payload string
}

// drain returns all complete frames, copied.
func drain(d *Decoder) ([]flatFrame, error) {
	var all []flatFrame
	for {
		f, ok, err := d.Next()
		if !ok || err != nil {
			return all, err
		}
		all = append(all, flatFrame{f.Type, string(f.Payload)})
	}
}

func frameOf(kind FrameType, payload string) []byte {
	return sealFrame(append(openFrame(nil, kind), payload...), 0)
}

func stream(frames []flatFrame) []byte {
	var b []byte
	for _, f := range frames {
		b = append(b, frameOf(f.kind, f.payload)...)
	}
	return b
}

var someFrames = []flatFrame{
	{FrameReady, ""}, {FrameMessage, "one"}, {FramePing, ""}, {FrameMessage, string(make([]byte, 3000))}, {FrameHeartbeat, "x"},
}

func TestDecoder_YieldsSeveralFramesAtOnce(t *testing.T) {
	var d Decoder
	d.Feed(stream(someFrames))
	got, err := drain(&d)
	checkFrames(t, got, err, someFrames)
}

func TestDecoder_YieldsFramesFedByteByByte(t *testing.T) {
	var d Decoder
	var got []flatFrame
	one := make([]byte, 1)
	for _, c := range stream(someFrames) {
		one[0] = c
		d.Feed(one)
		some, err := drain(&d)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, some...)
		one[0] = 0xff // the decoder may not rely on it any more
	}
	checkFrames(t, got, nil, someFrames)
}

func TestDecoder_KeepsWhatIsFedTwiceBeforeNext(t *testing.T) {
	var d Decoder
	b := stream(someFrames)
	d.Feed(b[:10])
	d.Feed(b[10:20])
	d.Feed(b[20:])
	got, err := drain(&d)
	checkFrames(t, got, err, someFrames)
}

func checkFrames(t *testing.T, got []flatFrame, err error, want []flatFrame) {
	t.Helper()
	if err != nil || !bytes.Equal(stream(got), stream(want)) {
		t.Fatalf("%d frames, %v; want %d", len(got), err, len(want))
	}
}

func TestDecoder_RefusesBadSizesFromTheLengthAlone(t *testing.T) {
	for _, c := range []struct {
		name      string
		handshake bool
		length    string
	}{
		{"one byte too large", false, "\x00\x40\x00\x01"},
		{"an HTTP request", false, "GET "},
		{"too large before admission", true, "\x00\x00\x10\x01"},
		{"no room for a checksum", false, "\x00\x00\x00\x04"},
		{"empty", false, "\x00\x00\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			d.SetHandshake(c.handshake)
			d.Feed([]byte(c.length))
			if _, err := drain(&d); !errors.Is(err, ErrFrameSize) {
				t.Fatalf("error %v", err)
			}
			d.Feed(frameOf(FramePing, ""))
			if got, err := drain(&d); !errors.Is(err, ErrFrameSize) || len(got) != 0 {
				t.Fatalf("the error is not final: %v, %v", got, err)
			}
		})
	}
}

func TestDecoder_AcceptsTheLargestFrame(t *testing.T) {
	payload := string(make([]byte, FrameSizeMax-typeSize-checksumSize))
	var d Decoder
	b := frameOf(FrameMessage, payload)
	for len(b) > 0 {
		n := min(len(b), 64<<10)
		d.Feed(b[:n])
		b = b[n:]
		got, err := drain(&d)
		if err != nil || len(got) != btoi(len(b) == 0) {
			t.Fatalf("%d frames, %v, with %d bytes to go", len(got), err, len(b))
		}
	}
	d.Feed(b)
	if _, err := drain(&d); err != nil || cap(d.store) > storeSizeMax {
		t.Fatalf("holds %d bytes after a large frame, %v", cap(d.store), err)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestDecoder_DetectsEveryFlippedBit(t *testing.T) {
	good := frameOf(FrameHeartbeat, "payload")
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		var d Decoder
		d.Feed(bad)
		if f, ok, _ := d.Next(); ok {
			t.Fatalf("bit %d flipped: got frame type %d", bit, f.Type)
		}
	}
	var d Decoder
	good[len(good)-1]++
	d.Feed(good)
	if _, err := drain(&d); !errors.Is(err, ErrChecksum) {
		t.Fatalf("error %v", err)
	}
}

// However a stream is cut, the decoder returns the same frames and the same error,
// and frames encode to the bytes they came from. The stream is body, cut into valid
// frames (a fuzzer would never find their checksums), then tail unchanged.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("some payloads of good frames"), []byte(nil), uint64(1))
	f.Add([]byte(nil), []byte("GET / HTTP/1.1\r\n\r\n"), uint64(2))
	f.Add([]byte("more"), stream(someFrames[:3])[:20], uint64(3))
	f.Fuzz(func(t *testing.T, body, tail []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var data []byte
		cut(rng, body, func(piece []byte) bool {
			data = append(data, frameOf(FrameType(len(data)), string(piece))...)
			return true
		})
		data = append(data, tail...)

		var whole, pieces Decoder
		whole.Feed(bytes.Clone(data))
		want, wantErr := drain(&whole)
		if !bytes.HasPrefix(data, stream(want)) {
			t.Fatalf("frames %v do not encode to %x", want, data)
		}
		var got []flatFrame
		var err error
		cut(rng, data, func(piece []byte) bool {
			var some []flatFrame
			mine := bytes.Clone(piece)
			pieces.Feed(mine)
			some, err = drain(&pieces)
			got = append(got, some...)
			clear(mine) // the decoder may not rely on it any more
			return err == nil
		})
		if !bytes.Equal(stream(got), stream(want)) || (err == nil) != (wantErr == nil) {
			t.Fatalf("cut up: %v, %v; at once: %v, %v", got, err, want, wantErr)
		}
	})
}

// cut calls f with random pieces of b until it reports false.
func cut(rng *rand.Rand, b []byte, f func(piece []byte) bool) {
	for len(b) > 0 {
		n := 1 + rng.IntN(len(b))
		if !f(b[:n]) {
			return
		}
		b = b[n:]
	}
}
