package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

// wantRefusedOrSame checks that a damaged copy is either refused as damaged or holds exactly
// what was saved, and that bbolt did not panic.
func wantRefusedOrSame(t *testing.T, dir string, want storage.Recovered) (refused bool) {
	t.Helper()
	got, err := storage.Peek(dir)
	if err == nil {
		if d := difference(got, want); got.Fresh || d != "" {
			t.Fatalf("damage was accepted and changed the %s", d)
		}
		return false
	}
	if _, ok := errors.AsType[*storage.CorruptError](err); !ok || errors.Is(err, storage.ErrPanicked) {
		t.Fatalf("damage gave %v", err)
	}
	return true
}

func TestStore_NoticesEveryFlippedByte(t *testing.T) {
	for name, deep := range map[string]bool{"flat": false, "deep": true} {
		t.Run(name, func(t *testing.T) {
			dir, want := specimen(t, deep)
			content := readFile(t, dir)
			// All bytes of the page headers and of the first elements, and some of
			// the rest: most of a small file is padding and free pages.
			head := map[bool]int{false: 1024, true: 96}[deep]
			f, err := os.OpenFile(filepath.Join(dir, storage.FileName), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			refused, tried := 0, 0
			for i := range content {
				if offset := i % os.Getpagesize(); i%29 != 0 && (offset >= head || testing.Short()) {
					continue
				}
				mask := []byte{0x01, 0x80, 0xFF, 0x04}[i%4]
				if _, err := f.WriteAt([]byte{content[i] ^ mask}, int64(i)); err != nil {
					t.Fatal(err)
				}
				if wantRefusedOrSame(t, dir, want) {
					refused++
				}
				if t.Failed() {
					t.Fatalf("byte %d", i)
				}
				if _, err := f.WriteAt(content[i:i+1], int64(i)); err != nil {
					t.Fatal(err)
				}
				tried++
			}
			t.Logf("%d of %d flips refused, the others changed nothing", refused, tried)
			if refused == 0 {
				t.Fatal("no flip was noticed: the test does not test")
			}
		})
	}
}

func TestStore_NoticesTruncationAndExtension(t *testing.T) {
	dir, want := specimen(t, true)
	content := readFile(t, dir)
	for size := 0; size < len(content); size += 97 {
		writeFile(t, dir, content[:size])
		wantRefusedOrSame(t, dir, want)
	}
	writeFile(t, dir, append(bytes.Clone(content), make([]byte, 5000)...))
	if wantRefusedOrSame(t, dir, want) {
		t.Error("a file longer than needed was refused")
	}
}

func TestStore_NoticesSwappedAndZeroedPages(t *testing.T) {
	dir, want := specimen(t, true)
	content := readFile(t, dir)
	page := os.Getpagesize()
	pages := len(content) / page
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		damaged := bytes.Clone(content)
		to, from := random.IntN(pages)*page, random.IntN(pages)*page
		if random.IntN(4) == 0 {
			clear(damaged[to : to+page])
		} else {
			copy(damaged[to:to+page], content[from:from+page])
		}
		writeFile(t, dir, damaged)
		wantRefusedOrSame(t, dir, want)
	}
}

// TestStore_NoticesALostPageWrite gives single pages the content from before some Save, as a
// disk does that acknowledges a write and drops it.
func TestStore_NoticesALostPageWrite(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	page := os.Getpagesize()
	s, _ := open(t, options(dir))
	images := [][]byte{readFile(t, dir)}
	refused := 0
	for _, w := range script() {
		save(t, s, w)
		now := readFile(t, dir)
		writeFile(t, copied, now)
		want, err := storage.Peek(copied)
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range images {
			for at := 2 * page; at < len(before); at += page {
				image := bytes.Clone(now)
				copy(image[at:], before[at:at+page])
				writeFile(t, copied, image)
				if wantRefusedOrSame(t, copied, want) {
					refused++
				}
			}
		}
		images = append(images, now)
	}
	if refused == 0 {
		t.Fatal("no lost write was noticed: the test does not test")
	}
}

// TestStore_NoticesAStaleMetaPage replaces a meta page by its content from several
// transactions ago. bbolt alone would take the other meta page for the newest.
func TestStore_NoticesAStaleMetaPage(t *testing.T) {
	dir := t.TempDir()
	page := os.Getpagesize()
	s, _ := open(t, options(dir))
	save(t, s, script()[0])
	old := readFile(t, dir)
	for i := range uint64(4) {
		save(t, s, storage.Write{HardState: hardState(9, i, 10)})
	}
	now := readFile(t, dir)
	closeStore(t, s)
	for id := range 2 {
		image := bytes.Clone(now)
		copy(image[id*page:(id+1)*page], old[id*page:])
		writeFile(t, dir, image)
		wantCorrupt(t, dir)
	}
}

func TestStore_NoticesALeakedPage(t *testing.T) {
	dir, _ := specimen(t, true)
	file := readFile(t, dir)
	for at := 2 * os.Getpagesize(); at < len(file); at += os.Getpagesize() {
		// A free list that forgets its last page.
		if count := binary.NativeEndian.Uint16(file[at+10:]); file[at+8] == 0x10 && count > 0 {
			binary.NativeEndian.PutUint16(file[at+10:], count-1)
		}
	}
	writeFile(t, dir, file)
	if c := wantCorrupt(t, dir); !strings.Contains(c.Reason, "neither in use nor free") {
		t.Errorf("%v", c)
	}
}

// FuzzCheckPages writes arbitrary bytes somewhere into a sound file.
func FuzzCheckPages(f *testing.F) {
	dir, _ := specimen(f, true)
	sound := readFile(f, dir)
	f.Add(uint32(2*4096+8), []byte{1})
	f.Add(uint32(3*4096+16), []byte{0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		file := bytes.Clone(sound)
		copy(file[int(at)%len(file):], patch)
		if err := storage.CheckPages(file); err != nil {
			if _, ok := errors.AsType[*storage.CorruptError](err); !ok {
				t.Fatal(err)
			}
		}
	})
}
