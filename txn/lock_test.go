package txn

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestLock_DecodesWhatItEncodes(t *testing.T) {
	for _, l := range []lock{
		{start: 1, primary: ref{"s", "k"}, value: []byte{}},
		{start: 1<<63 - 1, expires: 1<<64 - 1, ttl: durationMax, primary: ref{strings.Repeat("s", spaceSizeMax), strings.Repeat("k", KeySizeMax)}, value: []byte("value")},
		{start: 5, deleted: true, primary: ref{"s", "k"}, value: []byte{}},
	} {
		got, err := decodeLock(l.encode())
		if err != nil || !reflect.DeepEqual(*got, l) {
			t.Errorf("%+v became %+v, %v", l, got, err)
		}
	}
}

func TestLock_FitsTheLimit(t *testing.T) {
	l := lock{primary: ref{strings.Repeat("s", spaceSizeMax), strings.Repeat("k", KeySizeMax)}, value: make([]byte, ValueSizeMax)}
	if n := len(l.encode()); n > LockSizeMax {
		t.Errorf("the largest lock has %d bytes, more than %d", n, LockSizeMax)
	}
}

func FuzzDecodeLock(f *testing.F) {
	l := lock{start: 7, expires: 9, primary: ref{"space", "key"}, value: []byte("value")}
	f.Add(l.encode())
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{255}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLock(b)
		if err != nil {
			return
		}
		if again := l.encode(); !bytes.Equal(again, b) {
			t.Errorf("%x was encoded as %x", b, again)
		}
	})
}
