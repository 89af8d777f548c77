package sim

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/isotone/isotone/internal/core/journal"
)

// directory has the files of a journal, as a process sees them and as a power cut leaves them. It
// implements journal.Files.
type directory struct {
	rng           *rand.Rand
	data, spare   *file // nil: there is none
	durableNames  [2]*file
	spareSectors  int64
	steps, killed int  // steps taken; the process ends in the one with the number killed, 0: in none
	failing       bool // syncs fail
	renames       bool // the file system renames files, and does not exchange names
}

// file is a file of sectors. A process reads and writes the cache. A power cut leaves the disk, and
// any of the dirty sectors.
type file struct {
	dir         *directory
	disk, cache []byte
	dirty       []bool // by sector of the cache
}

const sectorBytes = journal.SectorBytes

var (
	errKilled     = errors.New("the process was killed")
	errSyncFailed = errors.New("the sync has failed")
)

// options returns those of the journal in d.
func (d *directory) options() journal.Options {
	return journal.Options{Files: d, Salt: d.rng.Uint64, SpareSectors: d.spareSectors}
}

// run has a process do something with its journal; see save.
func (d *directory) run(mode diskMode, killed int, do func() error) error {
	d.steps, d.killed, d.failing = 0, killed, mode == diskFailing
	err := do()
	d.killed, d.failing = 0, false
	return err
}

// read reads the journal.
func (d *directory) read() (journal.Recovered, error) {
	if d.data == nil {
		return journal.Recovered{}, errors.New("there is no journal")
	}
	_, found, err := journal.Open(d.options(), d.data)
	return found, err
}

// step counts a step of the process, and reports whether it is the last one.
func (d *directory) step() (last bool) {
	d.steps++
	return d.killed > 0 && d.steps >= d.killed
}

// Spare implements journal.Files.
func (d *directory) Spare() (journal.File, error) {
	if d.spare == nil {
		d.spare = &file{dir: d}
	}
	return d.spare, nil
}

// Exchange implements journal.Files.
func (d *directory) Exchange(journal.File) error {
	if d.step() {
		return errKilled
	}
	if d.renames && d.data != nil {
		d.data = &file{dir: d}
	}
	d.data, d.spare = d.spare, d.data
	return nil
}

// Sync implements journal.Files.
func (d *directory) Sync() error {
	switch {
	case d.step():
		return errKilled
	case d.failing:
		return errSyncFailed
	}
	d.durableNames = [2]*file{d.data, d.spare}
	return nil
}

// cutPower has d lose what was not synced, or some of it. It reports whether sectors were lost and
// others, of the same write, were not.
func (d *directory) cutPower() (torn bool) {
	if now := [2]*file{d.data, d.spare}; now != d.durableNames && d.rng.Uint64()%2 == 0 {
		d.durableNames = now
	}
	d.data, d.spare = d.durableNames[0], d.durableNames[1]
	for _, f := range []*file{d.data, d.spare} {
		if f != nil {
			torn = f.cutPower() || torn
		}
	}
	return torn
}

// clone returns a copy of d.
func (d *directory) clone() *directory {
	if d == nil {
		return nil
	}
	c := *d
	c.data, c.spare = d.data.clone(&c), d.spare.clone(&c)
	c.durableNames = [2]*file{c.data, c.spare}
	return &c
}

// settled returns d with everything on the disk that its process had written.
func (d *directory) settled() *directory {
	for _, f := range []*file{d.data, d.spare} {
		if f != nil {
			f.write(func() bool { return true })
			clear(f.dirty)
		}
	}
	return d
}

func (f *file) clone(dir *directory) *file {
	if f == nil {
		return nil
	}
	return &file{dir, slices.Clone(f.disk), slices.Clone(f.cache), slices.Clone(f.dirty)}
}

func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	if offset > int64(len(f.cache)) {
		return 0, io.EOF
	}
	n := copy(b, f.cache[offset:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes whole sectors. A process that is killed has written some of them.
func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	if len(b)%sectorBytes != 0 || offset%sectorBytes != 0 {
		panic("sim: a write of part of a sector")
	}
	var err error
	if f.dir.step() {
		b = b[:f.dir.rng.Uint64()%uint64(len(b)/sectorBytes+1)*sectorBytes]
		err = errKilled
	}
	f.resize(max(len(f.cache), int(offset)+len(b)))
	copy(f.cache[offset:], b)
	for i := range len(b) / sectorBytes {
		f.dirty[int(offset)/sectorBytes+i] = true
	}
	return len(b), err
}

func (f *file) resize(size int) {
	for len(f.cache) < size {
		f.cache = append(f.cache, make([]byte, size-len(f.cache))...)
	}
	f.cache = f.cache[:size]
	for len(f.dirty) < size/sectorBytes {
		f.dirty = append(f.dirty, true)
	}
	f.dirty = f.dirty[:size/sectorBytes]
}

// Size implements journal.File.
func (f *file) Size() (int64, error) { return int64(len(f.cache)), nil }

// Truncate implements journal.File.
func (f *file) Truncate(size int64) error {
	if f.dir.step() {
		return errKilled
	}
	f.resize(int(size))
	return nil
}

// SyncData implements journal.File.
func (f *file) SyncData() error { return f.Sync() }

// Sync makes everything durable. If it fails, any sectors are, and the next one says nothing of the
// others, which are still in the cache.
func (f *file) Sync() error {
	if f.dir.step() {
		return errKilled
	}
	dirty := slices.Contains(f.dirty, true)
	f.write(func() bool { return !f.dir.failing || f.dir.rng.Uint64()%2 == 0 })
	clear(f.dirty)
	if f.dir.failing && dirty {
		return errSyncFailed
	}
	return nil
}

// Close implements journal.File.
func (f *file) Close() error { return nil }

// write writes the dirty sectors to the disk that keep picks, and returns how many it did and did not
// write.
func (f *file) write(keep func() bool) (kept, lost int) {
	f.disk = slices.Grow(f.disk, max(0, len(f.cache)-len(f.disk)))
	f.disk = f.disk[:len(f.cache)]
	for i, dirty := range f.dirty {
		switch at := i * sectorBytes; {
		case !dirty:
		case keep():
			copy(f.disk[at:at+sectorBytes], f.cache[at:])
			kept++
		default:
			lost++
		}
	}
	return kept, lost
}

// cutPower leaves any of the dirty sectors on the disk: all, none, or some.
func (f *file) cutPower() (torn bool) {
	all, none := f.dir.rng.Uint64()%4 == 0, f.dir.rng.Uint64()%4 == 0
	kept, lost := f.write(func() bool { return all || !none && f.dir.rng.Uint64()%2 == 0 })
	clear(f.dirty)
	f.cache = slices.Clone(f.disk)
	return kept > 0 && lost > 0
}

// rot flips a bit, and returns the number of the sector.
func (f *file) rot() int {
	number := int(f.dir.rng.Uint64() % uint64(len(f.disk)/sectorBytes))
	at, bit := number*sectorBytes+int(f.dir.rng.Uint64()%sectorBytes), byte(1)<<(f.dir.rng.Uint64()%8)
	f.disk[at] ^= bit
	f.cache[at] ^= bit
	return number
}
