// Package storetest tests implementations of txn.Store against what its documentation promises:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) txn.Store { return mystore.New(...) })
//	}
//
// [RunDurable] tests what survives failures, with the help of the store's own tests.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// timeout bounds one test, far above what a slow store needs.
const timeout = 2 * time.Minute

// Run runs all tests as subtests of t. Each calls newStore once, for a store without rows and with
// zero points; newStore may register its clean-up with t.
func Run(t *testing.T, newStore func(t *testing.T) txn.Store) {
	for _, test := range []struct {
		name string
		run  func(*fixture)
	}{
		{"Row_IsZeroWhenAbsent", testAbsent},
		{"Write_ComparesRevisions", testRevisions},
		{"Write_KeepsTheRestOfARow", testKeeps},
		{"Write_SetsAndClearsTheLock", testLock},
		{"Write_RefusedChangesNothing", testRefused},
		{"Versions_AreReadAsOfATimestamp", testVersions},
		{"Versions_MayBeDeletionsOrEmpty", testDeletions},
		{"Records_AreFoundByStart", testRecords},
		{"Drop_RemovesWhatIsOlder", testDrop},
		{"Row_CeasesToExistWithItsLastPart", testCeases},
		{"Scan_ReturnsRowsInOrder", testScanOrder},
		{"Scan_ReturnsPages", testScanPages},
		{"Scan_ReturnsWhatReadReturns", testScanRows},
		{"Points_OnlyGrow", testPoints},
		{"Seal_RefusesCommitsBelow", testSeal},
		{"Seal_RacesCommits", testSealRace},
		{"Limits_AreWithinReach", testLimits},
		{"Keys_MayHaveAnyBytes", testKeys},
		{"Slices_AreNotShared", testSlices},
		{"Context_EndsCalls", testContext},
		{"Write_HasOneWinner", testRace},
		{"Rows_BehaveAsTheModel", testModel},
		{"Transactions_KeepATotal", testTransactions},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			test.run(&fixture{T: t, ctx: ctx, store: newStore(t)})
		})
	}
}

// fixture is a store under test.
type fixture struct {
	*testing.T
	ctx   context.Context
	store txn.Store
	last  uint64 // the revision that was written last
}

func (f *fixture) next() uint64 {
	f.last++
	return f.last
}

func (f *fixture) read(key string, at, start isotone.Timestamp64) txn.Row {
	f.Helper()
	row, _, err := f.store.Read(f.ctx, []byte(key), at, start)
	if err != nil {
		f.Fatalf("Read(%q): %v", key, err)
	}
	return row
}

// write writes to the row as it is, and wants that to succeed.
func (f *fixture) write(key string, c txn.Change) {
	f.Helper()
	c.If, c.Next = f.read(key, 0, 0).Revision, f.next()
	if !f.try(key, c) {
		f.Fatalf("Write(%q, %+v) was refused", key, c)
	}
}

func (f *fixture) try(key string, c txn.Change) bool {
	f.Helper()
	done, err := f.store.Write(f.ctx, []byte(key), c)
	if err != nil {
		f.Fatalf("Write(%q): %v", key, err)
	}
	return done
}

func (f *fixture) scan(r txn.Range, at isotone.Timestamp64) txn.Page {
	f.Helper()
	page, err := f.store.Scan(f.ctx, r, at)
	if err != nil {
		f.Fatalf("Scan(%+v): %v", r, err)
	}
	if len(page.Entries) > r.Limit || page.More && len(page.Entries) == 0 {
		f.Fatalf("Scan(%+v) returned %d rows, more=%v", r, len(page.Entries), page.More)
	}
	return page
}

// all scans in pages of any size.
func (f *fixture) all(r txn.Range, at isotone.Timestamp64) (entries []txn.Entry) {
	f.Helper()
	for {
		page := f.scan(r, at)
		entries = append(entries, page.Entries...)
		if !page.More {
			return entries
		}
		r.From = append(bytes.Clone(entries[len(entries)-1].Key), 0)
	}
}

func put(commit isotone.Timestamp64, value string) txn.Change {
	return txn.Change{Put: txn.Version{Commit: commit, Value: []byte(value)}}
}

// equal compares rows; nil and empty bytes are the same.
func equal(a, b txn.Row) bool {
	return a.Revision == b.Revision && bytes.Equal(a.Lock, b.Lock) && a.Newest == b.Newest && a.Record == b.Record &&
		a.OldestVersion == b.OldestVersion && a.OldestRecord == b.OldestRecord &&
		a.Version.Commit == b.Version.Commit && a.Version.Deleted == b.Version.Deleted &&
		bytes.Equal(a.Version.Value, b.Version.Value)
}

func (f *fixture) want(key string, at, start isotone.Timestamp64, want txn.Row) {
	f.Helper()
	if got := f.read(key, at, start); !equal(got, want) {
		f.Fatalf("Read(%q, %d, %d)\n got %+v\nwant %+v", key, at, start, got, want)
	}
}

func testAbsent(f *fixture) {
	f.want("k", math.MaxInt64, 1, txn.Row{})
	f.write("k", put(1, "v"))
	f.want("k2", math.MaxInt64, 1, txn.Row{})
}

func testRevisions(f *fixture) {
	for _, step := range []struct {
		compare, next uint64
		want          bool
	}{
		{5, 6, false}, // absent
		{0, math.MaxInt64, true},
		{0, 7, false},
		{math.MaxInt64 - 1, 7, false},
		{math.MaxInt64, 3, true}, // revisions need not grow
		{math.MaxInt64, 4, false},
		{3, 9, true},
	} {
		c := put(1, "v")
		c.If, c.Next = step.compare, step.next
		if done := f.try("k", c); done != step.want {
			f.Fatalf("Write with revision %d: %v, want %v", step.compare, done, step.want)
		}
	}
	if got := f.read("k", 0, 0).Revision; got != 9 {
		f.Errorf("revision %d, want 9", got)
	}
}

func testKeeps(f *fixture) {
	f.write("k", txn.Change{Put: txn.Version{Commit: 5, Value: []byte("five")}, Record: txn.Record{Start: 4, Commit: 5}})
	f.write("k", txn.Change{Lock: []byte("lock")})
	want := txn.Row{
		Revision: f.last, Lock: []byte("lock"), Version: txn.Version{Commit: 5, Value: []byte("five")}, Newest: 5,
		Record: txn.Record{Start: 4, Commit: 5}, OldestVersion: 5, OldestRecord: 4,
	}
	f.want("k", 5, 4, want)
	f.write("other", put(9, "nine"))
	f.want("k", 5, 4, want)
}

func testLock(f *fixture) {
	f.write("k", txn.Change{Lock: []byte{0, 255, 1}})
	f.want("k", 9, 9, txn.Row{Revision: f.last, Lock: []byte{0, 255, 1}})
	f.write("k", txn.Change{Lock: []byte("second")})
	f.want("k", 9, 9, txn.Row{Revision: f.last, Lock: []byte("second")})
	f.write("k", put(3, "v"))
	f.want("k", 9, 9, txn.Row{Revision: f.last, Version: txn.Version{Commit: 3, Value: []byte("v")}, Newest: 3, OldestVersion: 3})
}

func testRefused(f *fixture) {
	f.write("k", put(3, "v"))
	before := f.read("k", 9, 8)
	c := txn.Change{
		If: f.last + 1, Next: f.last + 2, Lock: []byte("l"),
		Put: txn.Version{Commit: 8, Value: []byte("w")}, Record: txn.Record{Start: 8}, DropVersions: 5,
	}
	if f.try("k", c) {
		f.Fatal("a write with another revision succeeded")
	}
	f.want("k", 9, 8, before)
	if f.try("absent", c) {
		f.Fatal("a write of a row that does not exist succeeded")
	}
	f.want("absent", 9, 8, txn.Row{})
	if n := len(f.all(txn.Range{Limit: 10}, 9)); n != 1 {
		f.Errorf("%d rows, want 1", n)
	}
}

func testVersions(f *fixture) {
	const top = math.MaxInt64
	for _, commit := range []isotone.Timestamp64{20, 10, top, 30} { // in any order
		f.write("k", put(commit, fmt.Sprint(commit)))
	}
	for _, c := range []struct{ at, want isotone.Timestamp64 }{
		{0, 0}, {9, 0}, {10, 10}, {11, 10}, {20, 20}, {29, 20}, {30, 30}, {top - 1, 30}, {top, top},
	} {
		want := txn.Row{Revision: f.last, Newest: top, OldestVersion: 10}
		if c.want != 0 {
			want.Version = txn.Version{Commit: c.want, Value: fmt.Append(nil, uint64(c.want))}
		}
		f.want("k", c.at, 0, want)
	}
	f.write("k", put(20, "again"))
	if got := f.read("k", 25, 0).Version; string(got.Value) != "again" {
		f.Errorf("a version that was written twice is %+v", got)
	}
}

func testDeletions(f *fixture) {
	f.write("k", put(1, ""))
	f.write("k", txn.Change{Put: txn.Version{Commit: 2, Deleted: true}})
	f.write("k", put(3, "v"))
	for at, want := range []txn.Version{{}, {Commit: 1}, {Commit: 2, Deleted: true}, {Commit: 3, Value: []byte("v")}} {
		got := f.read("k", isotone.Timestamp64(at), 0).Version
		if got.Commit != want.Commit || got.Deleted != want.Deleted || !bytes.Equal(got.Value, want.Value) {
			f.Errorf("at %d: %+v, want %+v", at, got, want)
		}
	}
}

func testRecords(f *fixture) {
	for _, r := range []txn.Record{{Start: 20, Commit: 30}, {Start: 10}, {Start: math.MaxInt64, Commit: math.MaxInt64}} {
		f.write("k", txn.Change{Record: r})
	}
	f.write("other", txn.Change{Record: txn.Record{Start: 15}})
	for _, c := range []struct {
		start isotone.Timestamp64
		want  txn.Record
	}{
		{0, txn.Record{}}, {9, txn.Record{}}, {10, txn.Record{Start: 10}}, {15, txn.Record{}},
		{20, txn.Record{Start: 20, Commit: 30}}, {30, txn.Record{}},
		{math.MaxInt64, txn.Record{Start: math.MaxInt64, Commit: math.MaxInt64}},
	} {
		row := f.read("k", 0, c.start)
		if row.Record != c.want || row.OldestRecord != 10 || row.Newest != 0 || row.OldestVersion != 0 {
			f.Errorf("record of %d: %+v, want %+v", c.start, row, c.want)
		}
	}
}

func testDrop(f *fixture) {
	for i := isotone.Timestamp64(1); i <= 5; i++ {
		f.write("k", txn.Change{Put: txn.Version{Commit: 10 * i}, Record: txn.Record{Start: 10*i - 5, Commit: 10 * i}})
	}
	f.write("k", txn.Change{Lock: []byte("l"), DropVersions: 30})
	f.want("k", 29, 5, txn.Row{
		Revision: f.last, Lock: []byte("l"), Newest: 50, Record: txn.Record{Start: 5, Commit: 10}, OldestVersion: 30, OldestRecord: 5,
	})
	f.write("k", txn.Change{DropRecords: 36, DropVersions: 11})
	want := txn.Row{Revision: f.last, Version: txn.Version{Commit: 30}, Newest: 50, OldestVersion: 30, OldestRecord: 45}
	f.want("k", 39, 35, want)
	f.write("k", txn.Change{}) // drops nothing
	want.Revision = f.last
	f.want("k", 39, 35, want)
}

func testCeases(f *fixture) {
	for _, end := range []struct{ full, empty txn.Change }{
		{txn.Change{Lock: []byte("l")}, txn.Change{}},
		{put(5, "v"), txn.Change{DropVersions: 6}},
		{txn.Change{Record: txn.Record{Start: 5}}, txn.Change{DropRecords: 6}},
	} {
		f.write("k", end.full)
		f.write("k", end.empty)
		f.want("k", 9, 5, txn.Row{})
		if n := len(f.all(txn.Range{Limit: 10}, 9)); n != 0 {
			f.Errorf("a row that ceased to exist is still scanned")
		}
		c := end.full
		c.If, c.Next = f.last, f.next()
		if f.try("k", c) {
			f.Errorf("a row that ceased to exist still has its revision")
		}
	}
	f.write("gone", txn.Change{}) // makes nothing of nothing
	f.want("gone", 9, 9, txn.Row{})
}

func testScanOrder(f *fixture) {
	keys := []string{"\x00", "\x00\x00", "a", "a\x00", "a\x00b", "aa", "b", "b\xff", "b\xff\xff", "\x7f", "\x80", "\xff", "\xff\xff\x00"}
	for _, i := range []int{5, 2, 11, 0, 9, 3, 12, 7, 1, 10, 4, 8, 6} {
		f.write(keys[i], put(1, keys[i]))
	}
	slices.Sort(keys)
	for _, c := range []struct{ from, to string }{
		{"", ""}, {"a", "b"}, {"a\x00", "a\x00b"}, {"b", ""}, {"", "a"}, {"a\x01", "b\xff\x00"}, {"\xff", ""}, {"c", "d"}, {"\xff\xff\xff", ""},
	} {
		var want, got []string
		for _, key := range keys {
			if key >= c.from && (c.to == "" || key < c.to) {
				want = append(want, key)
			}
		}
		for _, limit := range []int{1, 2, txn.ScanRowsMax} {
			got = nil
			for _, e := range f.all(txn.Range{From: []byte(c.from), To: []byte(c.to), Limit: limit}, 1) {
				got = append(got, string(e.Key))
			}
			if !slices.Equal(got, want) {
				f.Errorf("Scan from %q to %q, %d at a time:\n got %q\nwant %q", c.from, c.to, limit, got, want)
			}
		}
	}
}

func testScanPages(f *fixture) {
	for i := range 10 {
		f.write(fmt.Sprint("k", i), put(1, "v"))
	}
	page := f.scan(txn.Range{Limit: 4}, 1)
	if !page.More || string(page.Entries[0].Key) != "k0" {
		f.Errorf("the first page: more=%v, first key %q", page.More, page.Entries[0].Key)
	}
	entries := f.all(txn.Range{Limit: 10}, 1)
	if len(entries) != 10 {
		f.Errorf("%d rows, want 10", len(entries))
	}
	if page := f.scan(txn.Range{From: []byte("k95"), Limit: 10}, 1); page.More || len(page.Entries) != 0 {
		f.Errorf("after the last row: %+v", page)
	}
}

func testScanRows(f *fixture) {
	f.write("deleted", txn.Change{Put: txn.Version{Commit: 3, Deleted: true}})
	f.write("later", put(50, "later"))
	f.write("lock", txn.Change{Lock: []byte("l")})
	f.write("mark", txn.Change{Record: txn.Record{Start: 7}})
	f.write("row", put(3, "three"))
	f.write("row", txn.Change{Put: txn.Version{Commit: 30}, Record: txn.Record{Start: 20, Commit: 30}})
	f.write("row", txn.Change{Lock: []byte("l")})
	entries := f.all(txn.Range{Limit: 2}, 20)
	if len(entries) != 5 {
		f.Fatalf("%d rows, want 5", len(entries))
	}
	for _, e := range entries {
		if want := f.read(string(e.Key), 20, 0); !equal(e.Row, want) {
			f.Errorf("row %q\n scanned %+v\n    read %+v", e.Key, e.Row, want)
		}
	}
}

func testPoints(f *fixture) {
	f.write("k", put(1, "v"))
	want := txn.Points{}
	for _, p := range []txn.Points{{}, {Safe: 10}, {Resolved: 5}, {Safe: 3, Resolved: 7}, {Safe: math.MaxInt64}, {}} {
		if err := f.store.Raise(f.ctx, p); err != nil {
			f.Fatal(err)
		}
		want.Safe, want.Resolved = max(want.Safe, p.Safe), max(want.Resolved, p.Resolved)
		got, err := f.store.Points(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		_, read, err := f.store.Read(f.ctx, []byte("absent"), 1, 1)
		if err != nil {
			f.Fatal(err)
		}
		if page := f.scan(txn.Range{Limit: 1}, 1); got != want || read != want || page.Points != want {
			f.Fatalf("after Raise(%v): Points %v, Read %v, Scan %v, want %v", p, got, read, page.Points, want)
		}
	}
}
