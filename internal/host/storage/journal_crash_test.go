package storage_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/host/storage"
)

// spareName is the file that becomes the data file.
const spareName = storage.FileName + ".spare"

// image is what a directory holds: the data file, and the spare one (nil: none).
type image struct{ file, spare []byte }

func imageOf(t testing.TB, dir string) (i image) {
	t.Helper()
	var err error
	if i.file = readFile(t, dir); i.file == nil {
		t.Fatal("no data file")
	}
	if i.spare, err = os.ReadFile(filepath.Join(dir, spareName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return i
}

func (i image) put(t testing.TB, dir string) {
	t.Helper()
	writeFile(t, dir, i.file)
	spare := filepath.Join(dir, spareName)
	err := os.RemoveAll(spare)
	if i.spare != nil {
		err = os.WriteFile(spare, i.spare, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// changedSectors returns the offsets of the sectors that differ.
func changedSectors(before, after []byte) (list []int) {
	for at := 0; at < len(after); at += sectorBytes {
		if !bytes.Equal(before[at:at+sectorBytes], after[at:at+sectorBytes]) {
			list = append(list, at)
		}
	}
	return list
}

// torn returns before with the sectors of after for which has is true.
func torn(before, after []byte, sectors []int, has func(i int) bool) []byte {
	mixed := bytes.Clone(before)
	for i, at := range sectors {
		if has(i) {
			copy(mixed[at:at+sectorBytes], after[at:])
		}
	}
	return mixed
}

// exhaustiveSectors is up to how many sectors all subsets are tried: 1,024.
const exhaustiveSectors = 10

// tornWrites returns what can be on the disk of a write that was not synced: every subset of its
// sectors, but for all of them.
func tornWrites(random *rand.Rand, before, after []byte) (files [][]byte) {
	sectors := changedSectors(before, after)
	if len(sectors) <= exhaustiveSectors {
		for set := range 1<<len(sectors) - 1 {
			files = append(files, torn(before, after, sectors, func(i int) bool { return set>>i&1 == 1 }))
		}
		return files
	}
	for missing := range sectors { // one is missing; the first n are there; some are there
		files = append(files,
			torn(before, after, sectors, func(i int) bool { return i != missing }),
			torn(before, after, sectors, func(i int) bool { return i < missing }),
			torn(before, after, sectors, func(i int) bool { return i != missing && random.IntN(2) == 0 }))
	}
	return files
}

// tornFile returns what can be on the disk of a new file that was not synced: any of its sectors, at
// any length, beside what was there before.
func tornFile(random *rand.Rand, before, after []byte) []byte {
	file := make([]byte, max(len(before), len(after)))
	copy(file, before)
	for at := 0; at < len(after); at += sectorBytes {
		if random.IntN(2) == 0 {
			copy(file[at:at+sectorBytes], after[at:])
		}
	}
	return file[:random.IntN(len(file)+1)]
}

// TestJournal_ACrashAtAnyStepLosesNothing stops at every step of every kind of write, and tries
// what the disk can have then. The files are so small that some writes need a new one.
func TestJournal_ACrashAtAnyStepLosesNothing(t *testing.T) {
	defer storage.SetSpareSectors(40)()
	random := rand.New(rand.NewPCG(5, 6))
	dir, copied := t.TempDir(), t.TempDir()
	var now image // as it was at the last step
	var saved storage.Recovered
	tried := map[string]int{}
	// The outcome of the write that is under way; it is known when the write is done.
	type outcome struct {
		step string
		r    storage.Recovered
	}
	var outcomes []outcome
	try := func(step string, i image) {
		i.put(t, copied)
		r, err := storage.Peek(copied)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		outcomes = append(outcomes, outcome{step, r})
		tried[step]++
	}
	created := false
	o := storage.WithSteps(options(dir), func(step string) {
		if !created {
			return
		}
		before := now
		now = imageOf(t, dir)
		switch step {
		case "record written":
			for _, file := range tornWrites(random, before.file, now.file) {
				r, err := storage.ReadJournal(file)
				if err != nil {
					t.Fatal(err)
				}
				wantSame(t, r, saved)
				tried["record torn"]++
			}
		case "file written":
			for range 20 {
				try("file torn", image{now.file, tornFile(random, before.spare, now.spare)})
			}
		case "file renamed":
			try("rename lost", before)
		}
		try(step, now)
	})
	s, saved := open(t, o)
	created = true
	long := func(index uint64, sectors int) storage.Write { // the whole record has that many
		data := strings.Repeat("d", (sectors-1)*sectorContentBytes)
		return storage.Write{Entries: []*raftpb.Entry{entry(index, 4, data)}, HardState: hardState(5, 2, index-1)}
	}
	for _, w := range append(script(), storage.Write{HardState: hardState(9, 9, 302)},
		long(304, 2), long(305, 7), long(306, 10), long(307, 30), long(308, 10)) {
		outcomes, now = nil, imageOf(t, dir)
		save(t, s, w)
		after, err := storage.Peek(copied)
		if err != nil {
			t.Fatal(err)
		}
		if difference(after, saved) == "" {
			t.Fatalf("%+v changed nothing", w)
		}
		for _, got := range outcomes {
			want := after
			if slices.Contains([]string{"file torn", "file written", "file synced", "rename lost"}, got.step) {
				want = saved
			}
			if d := difference(got.r, want); d != "" {
				t.Fatalf("%s: it differs in %s", got.step, d)
			}
		}
		saved = after
	}
	for _, step := range []string{"record torn", "record written", "record synced", "file torn", "file written", "file synced", "rename lost", "file renamed", "directory synced"} {
		if tried[step] == 0 {
			t.Errorf("no crash at %q was tried", step)
		}
	}
	t.Log(tried)
}

// TestJournal_SurvivesOneCrashAfterTheOther crashes again and again, also while it recovers, and
// goes on from what each crash left.
func TestJournal_SurvivesOneCrashAfterTheOther(t *testing.T) {
	defer storage.SetSpareSectors(12)()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		s, r := open(t, options(dir))
		closeStore(t, s)
		c := &crashes{t: t, rt: rt, dir: dir, disk: imageOf(t, dir), boot: r.Identity.Boot}
		c.saved, c.next = model{r}, model{r}
		for range rapid.IntRange(2, 12).Draw(rt, "crashes") {
			c.run()
		}
	})
}

// crashes is a directory whose process crashes.
type crashes struct {
	t    testing.TB
	rt   *rapid.T
	dir  string
	disk image // what the last crash left
	// saved was acknowledged before the crash, and next perhaps written.
	saved, next model
	boot        uint64
}

// run starts from what the last crash left, saves some writes, and crashes at some step.
func (c *crashes) run() {
	c.disk.put(c.t, c.dir)
	crashAt := rapid.IntRange(1, 14).Draw(c.rt, "crash at")
	steps, crashed := 0, false
	last := c.disk
	crash := func(i image) { c.disk, crashed = i, true }
	o := storage.WithSteps(options(c.dir), func(step string) {
		before := last
		last = imageOf(c.t, c.dir)
		if steps++; steps != crashAt {
			return
		}
		crash(c.left(step, before, last))
	})
	s, r, err := storage.Open(o)
	if err != nil {
		c.rt.Fatal(err)
	}
	defer s.Close()
	switch {
	case difference(r, c.saved.Recovered) == "":
	case difference(r, c.next.Recovered) == "":
		c.saved = c.next
	default:
		c.rt.Fatalf("recovered %+v\nsaved was %+v\nand perhaps %+v", r, c.saved, c.next)
	}
	if c.next = c.saved; crashed {
		return // while it recovered
	}
	if r.Identity.Boot <= c.boot {
		c.rt.Fatalf("boot %d after boot %d", r.Identity.Boot, c.boot)
	}
	c.boot = r.Identity.Boot
	for !crashed {
		c.saved = c.next
		w := c.next.draw(c.rt)
		if err := s.Save(w); err != nil {
			c.rt.Fatal(err)
		}
		if steps > 1000 {
			c.rt.Fatal("it never crashes")
		}
	}
}

// left returns what is on the disk after a crash at a step.
func (c *crashes) left(step string, before, now image) image {
	switch step {
	case "record written":
		sectors := changedSectors(before.file, now.file)
		has := rapid.SliceOfN(rapid.Bool(), len(sectors), len(sectors)).Draw(c.rt, "sectors")
		now.file = torn(before.file, now.file, sectors, func(i int) bool { return has[i] })
	case "file written":
		seed := rapid.Uint64().Draw(c.rt, "new file")
		now.spare = tornFile(rand.New(rand.NewPCG(seed, seed)), before.spare, now.spare)
	case "file renamed":
		if rapid.Bool().Draw(c.rt, "rename lost") {
			return before
		}
	}
	return now
}

// TestJournal_ACreationCanCrashAtAnyStep: afterwards the directory is fresh, or has its first data file.
func TestJournal_ACreationCanCrashAtAnyStep(t *testing.T) {
	defer storage.SetSpareSectors(8)()
	random := rand.New(rand.NewPCG(7, 8))
	dir := t.TempDir()
	path, draft := filepath.Join(dir, storage.FileName), filepath.Join(dir, storage.FileName+".new")
	var steps []string
	try := func(step string, created bool, draft []byte) { // once created, it is the spare file
		steps = append(steps, step)
		copied := t.TempDir()
		switch {
		case created:
			image{readFile(t, dir), draft}.put(t, copied)
		default:
			if err := os.WriteFile(filepath.Join(copied, storage.FileName+".new"), draft, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := storage.CheckNew(copied); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		}
		s, r := open(t, options(copied))
		if boot := map[bool]uint64{false: 1, true: 2}[created]; r.Fresh == created || r.Identity.Boot != boot {
			t.Errorf("%s: %+v", step, r)
		}
		save(t, s, script()[0])
		_, again := reopen(t, s, copied)
		m := model{r}
		m.apply(script()[0])
		wantSame(t, again, m.Recovered)
		if _, err := os.Stat(filepath.Join(copied, storage.FileName+".new")); !errors.Is(err, os.ErrNotExist) && !created {
			t.Errorf("%s: the draft is still there: %v", step, err)
		}
	}
	o := storage.WithSteps(options(dir), func(step string) {
		_, missing := os.Stat(path)
		created := missing == nil
		now, err := os.ReadFile(map[bool]string{false: draft, true: filepath.Join(dir, spareName)}[created])
		if err != nil && !created {
			t.Fatal(err)
		}
		if step == "file written" {
			for range 20 {
				try("file torn", created, tornFile(random, nil, now))
			}
		}
		if step == "file renamed" {
			try("rename lost", false, readFile(t, dir))
		}
		try(step, created, now)
	})
	s, r := open(t, o)
	if got := strings.Join(slices.Compact(steps), ", "); got != "file torn, file written, file synced, rename lost, file renamed, directory synced, file torn, file written, file synced, directory synced" {
		t.Errorf("steps: %s", got)
	}
	if !r.Fresh || r.Identity.Boot != 1 {
		t.Errorf("created: %+v", r)
	}
	closeStore(t, s)
	if i := imageOf(t, dir); len(i.spare) != len(i.file) {
		t.Errorf("the spare file has %d bytes, and the next data file may need %d", len(i.spare), len(i.file))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := storage.CheckNew(dir); err == nil {
		t.Error("nobody notices that the data file is gone")
	}
}
