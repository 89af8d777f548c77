package web

import (
	"fmt"
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

// TestHeads_FindsThoseThatMightBeReadInTwoWays and nothing in the body that ends a connection.
func TestHeads_FindsThoseThatMightBeReadInTwoWays(t *testing.T) {
	const strict = "GET / HTTP/1.1\r\nHost: x\r\nA: b c\r\n\r\n"
	for text, want := range map[string]string{
		"": "", strict: "[false]", strict + strict: "[false false]", "\r\n" + strict: "[false]",
		strict + "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n{\n \r}\n":         "[false false]",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\n\n":             "[false]",
		"GET / HTTP/1.1\r\nContent-LENGTH: 00\r\n\r\n" + strict:                  "[false false]",
		"GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 100) + "\r\n\r\n" + strict: "[false false]",
		"GET / HTTP/1.1\nHost: x\n\n":                                            "[true]",
		"GET / HTTP/1.1\r\nHost: x\n\r\n":                                        "[true]",
		"GET / HTTP/1.1\r\nHost: x\r\n\n":                                        "[true]",
		strict + "GET / HTTP/1.1\nHost: x\r\n\r\n" + strict:                      "[false true false]",
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n":                        "[true]",
		"GET / HTTP/1.1\r\n\tHost: x\r\n\r\n":                                    "[true]",
		"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n":                                   "[true]",
		"GET / HTTP/1.1\r\nA: b\r\r\n\r\n":                                       "[true]",
	} {
		if want == "" {
			want = "[]"
		}
		for piece := 1; piece <= len(text)+1; piece++ {
			var w watch
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				w.scan([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := fmt.Sprint(w.heads.waiting); got != want {
				t.Errorf("%q in pieces of %d: %s, want %s", text, piece, got, want)
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
