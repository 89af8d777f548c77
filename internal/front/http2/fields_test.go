package http2

import (
	"fmt"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// blocks are header blocks of each representation.
var blocks = map[string]bool{
	"\x82\x86\x84\x41\x01x":         false, // with indexing
	"\x82\x86\x84":                  true,
	"\x82\x04\x01/\x0f\x2a\x01x":    true, // without indexing
	"\x10\x01a\x01b":                true, // never indexed
	"\x3f\xe1\x1f\x82":              false,
	"\x20":                          false,
	"":                              true,
	"\x00\x01a":                     false, // cut
	"\x00\x81\x1f\x81\x1f":          true,  // Huffman
	"\xff":                          false,
	"\xff\x80\x80\x80\x80\x80\x80x": false,
	"\x04\x7f":                      false,
}

func TestIsStateless(t *testing.T) {
	for block, want := range blocks {
		if got := isStateless([]byte(block)); got != want {
			t.Errorf("%x: %v", block, got)
		}
	}
}

// FuzzIsStateless: a block that is stateless means the same again, and leaves the meaning of others as it is.
func FuzzIsStateless(f *testing.F) {
	for block := range blocks {
		f.Add([]byte(block), []byte("\xbe\xbf"))
	}
	f.Add([]byte("\x19\x81t"), []byte(":\x81t5\x01")) // no Huffman code ends so
	f.Fuzz(func(t *testing.T, block, other []byte) {
		if !isStateless(block) {
			return
		}
		decode := func(d *hpack.Decoder, b []byte) (string, error) {
			got := ""
			d.SetEmitFunc(func(f hpack.HeaderField) { got += fmt.Sprintf("%q ", f) })
			_, err := d.Write(b)
			if err == nil {
				err = d.Close()
			}
			return fmt.Sprint(got, err), err
		}
		begin := []byte("\x40\x01a\x01b\x40\x01c\x01d") // two entries in the table
		with, without := hpack.NewDecoder(4096, nil), hpack.NewDecoder(4096, nil)
		_, _ = decode(with, begin)
		_, _ = decode(without, begin)
		first, err := decode(with, block)
		if err != nil {
			return // the connection has failed
		}
		if again, _ := decode(with, block); again != first {
			t.Fatalf("%x: %s, then %s", block, first, again)
		}
		a, _ := decode(with, other)
		if b, _ := decode(without, other); a != b {
			t.Fatalf("%x after %x: %s, without it %s", other, block, a, b)
		}
	})
}
