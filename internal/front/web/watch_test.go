package web

import (
	"strings"
	"testing"
)

func TestWatch_FindsTheFieldHoweverItArrives(t *testing.T) {
	for text, want := range map[string]bool{
		"transfer-encoding": true, "Transfer-Encoding: x": true, "TRANSFER-ENCODING": true,
		"ttransfer-encoding": true, "transfer-transfer-encoding": true, "trantransfer-encoding": true,
		"transfer-encodin": false, "transfer_encoding": false, "transfer\r-encoding": false, "": false,
		strings.Repeat("t", 1000): false,
	} {
		for piece := 1; piece <= len(text)+1; piece++ {
			var w watch
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				w.scan([]byte(rest[:n]))
				rest = rest[n:]
			}
			if w.seen.Load() != want {
				t.Errorf("%.40q in pieces of %d: %v", text, piece, !want)
			}
		}
	}
}

// FuzzWatch compares the watch with a search through everything.
func FuzzWatch(f *testing.F) {
	f.Add("transfer-encoding", 3)
	f.Add("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 20)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		var w watch
		cut = max(0, min(cut, len(text)))
		w.scan([]byte(text[:cut]))
		w.scan([]byte(text[cut:]))
		ascii := strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r | 0x20
			}
			return r
		}, text)
		if got := w.seen.Load(); got != strings.Contains(ascii, framingField) {
			t.Errorf("%q: %v", text, got)
		}
	})
}

func BenchmarkWatch(b *testing.B) {
	var w watch
	head := []byte("GET /members HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n")
	b.SetBytes(int64(len(head)))
	for b.Loop() {
		w.scan(head)
	}
}
