package client_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// FuzzParse: whatever a node sends, nothing panics, only exactly correct answers are
// accepted, and memory is bounded (the fuzzer would notice).
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"$16\r\n0123456789abcdef\r\n", "-MOVED 0 host:1\r\n", "-MOVED 0 ::1:1\r\n", "-TRYAGAIN x\r\n", "-ERR internal: x\r\n",
		"*2\r\n:1\r\n:2\r\n", ":5\r\n", "+PONG\r\n", "$37\r\n\r\nisotone_cluster_id:00c0ffee00c0ffee\r\n", "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$4\r\nhost\r\n:80\r\n",
		"*5\r\n:1\r\n:2\r\n:3\r\n$9\r\n41/5/5/12\r\n:0\r\n", "*4096\r\n*4096\r\n", "$4096\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
		"-\r\n", "-MOVED\r\n", "$-1\r\n", "*-1\r\n",
	} {
		f.Add([]byte(seed), uint64(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, count uint64) {
		count = max(1, count%(isotone.RangeCountMax+1))
		first, ids, refused, err := client.Parse(text, count)
		if err == nil && !refused {
			want := []byte("$16\r\n")
			want = binary.BigEndian.AppendUint64(want, first[0])
			want = binary.BigEndian.AppendUint64(want, first[1])
			want = append(want, "\r\n"...)
			if !bytes.HasPrefix(text, want) {
				t.Errorf("%q was read as %v", text, first)
			}
			if first[1]+(count-1) < first[1] {
				t.Errorf("%d timestamps from %v on", count, first)
			}
		}
		if ids != nil {
			if uint64(len(ids)) != count {
				t.Errorf("%d IDs of %d", len(ids), count)
			}
			for _, id := range ids {
				if id < 0 || !bytes.Contains(text, fmt.Appendf(nil, "%d", id)) {
					t.Errorf("%q gave %d", text, id)
				}
			}
		}
	})
}
