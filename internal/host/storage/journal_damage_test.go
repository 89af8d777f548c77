package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

// journalSpecimen returns a journal with records of one and of several sectors and some empty
// sectors, what it holds, and what it held before its last records.
func journalSpecimen(t testing.TB, last ...storage.Write) (file []byte, before, want storage.Recovered) {
	t.Helper()
	defer storage.SetSpareSectors(24)()
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 9, 1), HardState: hardState(1, 2, 5), ClusterID: 42})
	save(t, s, storage.Write{Compact: snapshot(4, 1, "state")}, storage.Write{Entries: entries(8, 40, 2)})
	save(t, s, storage.Write{HardState: hardState(2, 7, 8)})
	before, err := storage.ReadJournal(readFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range last {
		save(t, s, w)
	}
	closeStore(t, s)
	file = readFile(t, dir)
	if want, err = storage.ReadJournal(file); err != nil {
		t.Fatal(err)
	}
	return file, before, want
}

func shortWrite() storage.Write { return storage.Write{HardState: hardState(3, 7, 9)} }
func longWrite() storage.Write {
	return storage.Write{Entries: entries(41, 80, 3), HardState: hardState(3, 7, 9)}
}

// wantDamaged checks that a journal is refused as damaged.
func wantDamaged(t testing.TB, what string, file []byte) *storage.CorruptError {
	t.Helper()
	r, err := storage.ReadJournal(file)
	c, ok := errors.AsType[*storage.CorruptError](err)
	if !ok {
		t.Fatalf("%s: %v, recovered %+v", what, err, r)
	}
	if c.Record == "" || c.Reason == "" {
		t.Fatalf("%s: %+v", what, c)
	}
	return c
}

func TestJournal_NoticesEveryFlippedByte(t *testing.T) {
	file, _, _ := journalSpecimen(t, longWrite())
	for i := range file {
		for _, mask := range []byte{0x01, 0x80, 0xFF} {
			file[i] ^= mask
			wantDamaged(t, "a flipped byte", file)
			file[i] ^= mask
		}
	}
}

// TestJournal_NoticesEveryDamagedSector zeroes and replaces each sector by each other one, and by
// the same one of an earlier or another file. What an unfinished write leaves is the only thing
// that is no damage: the last record without some of its sectors.
func TestJournal_NoticesEveryDamagedSector(t *testing.T) {
	for name, last := range map[string]storage.Write{"short": shortWrite(), "long": longWrite()} {
		t.Run(name, func(t *testing.T) {
			file, before, _ := journalSpecimen(t, last)
			other, _, _ := journalSpecimen(t, last) // with another salt
			sectors := len(file) / sectorBytes
			at := func(number int) int { return number * sectorBytes }
			isLast := func(number int) bool {
				return binary.BigEndian.Uint64(file[at(number)+4:]) == 4+1 // the boot has one, and each Save
			}
			torn, refused := 0, 0
			check := func(what string, number int, content []byte) {
				t.Helper()
				damaged := bytes.Clone(file)
				copy(damaged[at(number):], content)
				empty := bytes.Count(content, []byte{0}) == len(content)
				switch {
				case bytes.Equal(damaged, file):
				case empty && isLast(number):
					r, err := storage.ReadJournal(damaged)
					if err != nil {
						t.Fatal(err)
					}
					wantSame(t, r, before)
					torn++
				default:
					wantDamaged(t, what, damaged)
					refused++
				}
			}
			for to := range sectors {
				check("zeroed", to, make([]byte, sectorBytes))
				check("of another file", to, other[at(to):at(to+1)])
				for from := range sectors {
					check("duplicated", to, file[at(from):at(from+1)])
				}
			}
			if torn == 0 || refused < sectors*sectors/2 {
				t.Errorf("%d torn, %d refused", torn, refused)
			}
			for a := range sectors {
				for b := range a {
					swapped := bytes.Clone(file)
					copy(swapped[at(a):], file[at(b):at(b+1)])
					copy(swapped[at(b):], file[at(a):at(a+1)])
					if !bytes.Equal(swapped, file) {
						wantDamaged(t, "swapped", swapped)
					}
				}
			}
		})
	}
}

func TestJournal_NoticesEveryOtherLength(t *testing.T) {
	file, _, _ := journalSpecimen(t, longWrite())
	for size := 0; size < len(file); size += 61 {
		wantDamaged(t, "truncated", file[:size])
	}
	for _, more := range []int{1, 511, 512, 4096} {
		wantDamaged(t, "extended", append(bytes.Clone(file), make([]byte, more)...))
	}
}

// TestJournal_RefusesDamageInTheTail has sectors behind the last record that no unfinished write
// leaves.
func TestJournal_RefusesDamageInTheTail(t *testing.T) {
	const salt = 77
	sound, _, _ := journalSpecimen(t, shortWrite())
	payloads := journalPayloads(sound)
	next := nextJournalRecord(t, shortWrite(), longWrite())
	const empty = 30
	base := buildJournal(salt, empty, payloads...)
	first := len(base)/sectorBytes - empty
	whole := buildJournal(salt, empty, append(payloads[:len(payloads):len(payloads)], next)...)
	record := uint64(len(payloads) + 1)
	at := func(number int) int { return number * sectorBytes }
	part := func(place int) []byte { return whole[at(first+place):at(first+place+1)] }
	valid := func(number int, record uint64, length, place uint32) []byte {
		n := min(int(length)-int(place)*sectorContentBytes, sectorContentBytes)
		return appendJournalSector(nil, salt, int64(number), record, length, place, make([]byte, max(n, 0)))
	}
	if len(next) < 3*sectorContentBytes {
		t.Fatalf("the record has only %d bytes", len(next))
	}
	for name, test := range map[string]struct {
		change map[int][]byte // by sector behind the last record
		sound  bool
	}{
		"nothing":                        {nil, true},
		"its first sector":               {map[int][]byte{0: part(0)}, true},
		"its second sector":              {map[int][]byte{1: part(1)}, true},
		"all but the first":              {map[int][]byte{1: part(1), 2: part(2)}, true},
		"a part in another's place":      {map[int][]byte{0: part(1)}, false},
		"behind the record":              {map[int][]byte{0: part(0), 9: valid(first+9, record, 300, 0)}, false},
		"the next record":                {map[int][]byte{0: valid(first, record+1, 300, 0)}, false},
		"the last record again":          {map[int][]byte{0: valid(first, record-1, 300, 0)}, false},
		"two lengths":                    {map[int][]byte{0: part(0), 1: valid(first+1, record, 999, 1)}, false},
		"two lengths, without the first": {map[int][]byte{1: part(1), 2: valid(first+2, record, 1999, 2)}, false},
		"longer than the file":           {map[int][]byte{0: valid(first, record, empty*512, 0)}, false},
		"a part behind the end":          {map[int][]byte{2: valid(first+2, record, 300, 2)}, false},
		"record 0":                       {map[int][]byte{0: valid(first, 0, 300, 0)}, false},
		"of length 0":                    {map[int][]byte{0: valid(first, record, 0, 0)}, false},
		"from another sector":            {map[int][]byte{0: valid(first+1, record, 999, 0)}, false},
		"noise":                          {map[int][]byte{5: []byte("noise")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := bytes.Clone(base)
			for place, content := range test.change {
				copy(file[at(first+place):], content)
			}
			if !test.sound {
				wantDamaged(t, name, file)
				return
			}
			if _, err := storage.ReadJournal(file); err != nil {
				t.Fatal(err)
			}
		})
	}
	if _, err := storage.ReadJournal(whole); err != nil {
		t.Fatal(err)
	}
}

// TestJournal_RefusesRecordsThatDoNotFitTogether has valid sectors throughout.
func TestJournal_RefusesRecordsThatDoNotFitTogether(t *testing.T) {
	sound, _, want := journalSpecimen(t, longWrite())
	payloads := journalPayloads(sound)
	r, err := storage.ReadJournal(buildJournal(1, 2, payloads...))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, r, want)
	for i, payload := range payloads {
		for b := range payload {
			payload[b] ^= 1
			c := wantDamaged(t, "a changed record", buildJournal(1, 2, payloads...))
			if !strings.Contains(c.Record, "record ") {
				t.Fatalf("%v", c)
			}
			payload[b] ^= 1
		}
		for _, other := range [][]byte{payload[:len(payload)-1], append(bytes.Clone(payload), 0), append(bytes.Clone(payload), 16), payload[:120]} {
			changed := append([][]byte{}, payloads...)
			changed[i] = other
			wantDamaged(t, "another length", buildJournal(1, 2, changed...))
		}
		without := append(append([][]byte{}, payloads[:i]...), payloads[i+1:]...)
		if i < len(payloads)-1 {
			wantDamaged(t, "a record is missing", buildJournal(1, 2, without...))
		}
		wantDamaged(t, "a record is there twice", buildJournal(1, 2, append(append([][]byte{}, payloads[:i+1]...), payloads[i:]...)...))
	}
	wantDamaged(t, "no record", buildJournal(1, 20))
	wantDamaged(t, "no sector", buildJournal(1, 0))
}

// FuzzReadJournal writes arbitrary bytes somewhere into a sound journal. With reseal, the
// checksums of the sectors are valid, so that the records are reached.
func FuzzReadJournal(f *testing.F) {
	sound, _, _ := journalSpecimen(f, longWrite())
	tail := len(sound) / sectorBytes
	f.Add(uint32(20), []byte{1}, false)
	f.Add(uint32(512+20+40), []byte{0xFF, 0xFF, 0xFF, 0xFF}, true)
	f.Add(uint32(512+12), []byte{0xFF, 0xFF, 0xFF, 0xFF}, true)
	f.Add(uint32(512*(tail-1)), []byte{1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, reseal bool) {
		file := bytes.Clone(sound)
		copy(file[int(at)%len(file):], patch)
		if reseal {
			resealSectors(file)
		}
		r, err := storage.ReadJournal(file)
		if err != nil {
			_, damaged := errors.AsType[*storage.CorruptError](err)
			if _, other := errors.AsType[*storage.FormatError](err); !damaged && !other {
				t.Fatal(err)
			}
			return
		}
		// What is accepted is accepted again when it is written anew.
		again, err := storage.ReadJournal(buildJournal(9, 1, journalPayloads(file)...))
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, again, r)
	})
}

// FuzzJournalRecord tries arbitrary records behind sound ones, with valid sectors.
func FuzzJournalRecord(f *testing.F) {
	sound, _, _ := journalSpecimen(f, longWrite())
	payloads := journalPayloads(sound)
	for _, payload := range payloads {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, before := range [][][]byte{nil, payloads[:1], payloads} {
			all := append(before[:len(before):len(before)], payload)
			if len(payload) == 0 {
				return
			}
			_, err := storage.ReadJournal(buildJournal(3, 1, all...))
			if _, ok := errors.AsType[*storage.CorruptError](err); err != nil && !ok {
				t.Fatal(err)
			}
		}
	})
}
