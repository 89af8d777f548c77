package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

func testLimits(f *fixture) {
	key := strings.Repeat("\xff", txn.KeySizeMax)
	value := bytes.Repeat([]byte{0, 1, 254, 255}, txn.ValueSizeMax/4)
	lock := bytes.Repeat([]byte("l"), txn.LockSizeMax)
	f.write(key, txn.Change{Lock: lock})
	if got := f.read(key, 1, 1); !bytes.Equal(got.Lock, lock) {
		f.Errorf("a lock of %d bytes came back with %d", len(lock), len(got.Lock))
	}
	f.write(key, txn.Change{Put: txn.Version{Commit: 1, Value: value}})
	f.write(key[1:], txn.Change{Lock: lock, Put: txn.Version{Commit: 1, Value: value}})
	if got := f.read(key, 1, 1); !bytes.Equal(got.Version.Value, value) {
		f.Errorf("a value of %d bytes came back with %d", len(value), len(got.Version.Value))
	}
	if n := len(f.all(txn.Range{From: []byte(key[1:]), Limit: txn.ScanRowsMax}, 1)); n != 2 {
		f.Errorf("scanned %d rows, want 2", n)
	}
	if n := len(f.all(txn.Range{From: []byte(key[1:] + "\x00"), To: []byte(key + "\x00"), Limit: 1}, 1)); n != 1 {
		f.Errorf("scanned %d rows up to a key of %d bytes, want 1", n, len(key)+1)
	}
}

func testKeys(f *fixture) {
	var all []string
	for b := range 256 {
		all = append(all, string([]byte{byte(b)}), string([]byte{'k', byte(b), ':'}))
	}
	all = append(all, "{tag}", "a:b", "a::b", "a", ":", "%s", "'", "\"", "\\", "k*", "é", "\xc3\x28")
	slices.Sort(all)
	all = slices.Compact(all)
	for i, key := range all {
		f.write(key, put(isotone.Timestamp64(i+1), key))
	}
	for i, key := range all {
		if v := f.read(key, 1e6, 0).Version; v.Commit != isotone.Timestamp64(i+1) || string(v.Value) != key {
			f.Errorf("row %q has version %+v", key, v)
		}
	}
	var got []string
	for _, e := range f.all(txn.Range{Limit: 100}, 1e6) {
		got = append(got, string(e.Key))
	}
	if !slices.Equal(got, all) {
		f.Errorf("scanned %q, want %q", got, all)
	}
}

func testSlices(f *fixture) {
	key, value, lock := []byte("key"), []byte("value"), []byte("lock")
	c := txn.Change{Next: f.next(), Lock: lock, Put: txn.Version{Commit: 1, Value: value}}
	if done, err := f.store.Write(f.ctx, key, c); !done || err != nil {
		f.Fatal(done, err)
	}
	want := f.read("key", 1, 1)
	for _, b := range [][]byte{key, value, lock} {
		clear(b)
	}
	for range 2 { // the second time after the results of the first were changed
		got := f.read("key", 1, 1)
		if string(got.Lock) != "lock" || string(got.Version.Value) != "value" || got.Revision != want.Revision {
			f.Errorf("the row is %+v", got)
		}
		entry := f.scan(txn.Range{Limit: 1}, 1).Entries[0]
		if string(entry.Key) != "key" || string(entry.Row.Lock) != "lock" || string(entry.Row.Version.Value) != "value" {
			f.Errorf("the entry is %+v", entry)
		}
		for _, b := range [][]byte{got.Lock, got.Version.Value, entry.Key, entry.Row.Lock, entry.Row.Version.Value} {
			clear(b)
		}
	}
}

func testContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, _, readErr := f.store.Read(ctx, []byte("k"), 1, 1)
	_, scanErr := f.store.Scan(ctx, txn.Range{Limit: 1}, 1)
	_, writeErr := f.store.Write(ctx, []byte("k"), txn.Change{Next: 1, Lock: []byte("l")})
	_, pointsErr := f.store.Points(ctx)
	raiseErr := f.store.Raise(ctx, txn.Points{Safe: 1})
	for name, err := range map[string]error{"Read": readErr, "Scan": scanErr, "Write": writeErr, "Points": pointsErr, "Raise": raiseErr} {
		if !errors.Is(err, context.Canceled) {
			f.Errorf("%s with a canceled context: %v", name, err)
		}
	}
}

// testRace has several clients write the same row: of all writes with one revision, one succeeds.
func testRace(f *fixture) {
	const clients, each = 8, 25
	var revision atomic.Uint64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for wins := 0; wins < each; {
				row, _, err := f.store.Read(f.ctx, []byte("k"), 1, 0)
				if err != nil {
					f.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(row.Version.Value))
				c := put(1, strconv.Itoa(n+1))
				c.If, c.Next = row.Revision, revision.Add(1)
				done, err := f.store.Write(f.ctx, []byte("k"), c)
				if err != nil {
					f.Error(err)
					return
				}
				if done {
					wins++
				}
			}
		})
	}
	wg.Wait()
	if got := string(f.read("k", 1, 0).Version.Value); got != strconv.Itoa(clients*each) {
		f.Errorf("counted to %s by %d increments", got, clients*each)
	}
}

// model is the simplest implementation of one row.
type model struct {
	revision uint64
	lock     string
	versions []txn.Version
	records  []txn.Record
}

func (m *model) write(c txn.Change) bool {
	if c.If != m.revision {
		return false
	}
	m.revision, m.lock = c.Next, string(c.Lock)
	if c.Put.Commit != 0 {
		m.versions = slices.DeleteFunc(m.versions, func(v txn.Version) bool { return v.Commit == c.Put.Commit })
		m.versions = append(m.versions, c.Put)
	}
	if c.Record.Start != 0 {
		m.records = slices.DeleteFunc(m.records, func(r txn.Record) bool { return r.Start == c.Record.Start })
		m.records = append(m.records, c.Record)
	}
	m.versions = slices.DeleteFunc(m.versions, func(v txn.Version) bool { return v.Commit < c.DropVersions })
	m.records = slices.DeleteFunc(m.records, func(r txn.Record) bool { return r.Start < c.DropRecords })
	slices.SortFunc(m.versions, func(a, b txn.Version) int { return cmp.Compare(a.Commit, b.Commit) })
	slices.SortFunc(m.records, func(a, b txn.Record) int { return cmp.Compare(a.Start, b.Start) })
	if m.lock == "" && len(m.versions) == 0 && len(m.records) == 0 {
		*m = model{}
	}
	return true
}

func (m *model) read(at, start isotone.Timestamp64) txn.Row {
	row := txn.Row{Revision: m.revision, Lock: []byte(m.lock)}
	for i, v := range m.versions {
		if i == 0 {
			row.OldestVersion = v.Commit
		}
		if v.Commit <= at {
			row.Version = v
		}
		row.Newest = v.Commit
	}
	for i, r := range m.records {
		if i == 0 {
			row.OldestRecord = r.Start
		}
		if r.Start == start && start != 0 {
			row.Record = r
		}
	}
	return row
}

// testModel compares random writes with the model.
func testModel(f *fixture) {
	const keys, writes, span = 5, 500, 12
	rng := rand.New(rand.NewPCG(1, 2))
	stamp := func() isotone.Timestamp64 { return isotone.Timestamp64(rng.Uint64N(span)) }
	models := map[string]*model{}
	for i := range keys {
		models[fmt.Sprint("k", i)] = &model{}
	}
	for n := range writes {
		key := fmt.Sprint("k", rng.IntN(keys))
		m := models[key]
		c := txn.Change{If: m.revision, Next: f.next()}
		if rng.IntN(8) == 0 {
			c.If = rng.Uint64N(f.last + 1)
		}
		if rng.IntN(2) == 0 {
			c.Lock = fmt.Append(nil, "lock", n)
		}
		if rng.IntN(3) == 0 {
			c.DropVersions, c.DropRecords = stamp(), stamp()
		} else {
			c.Put = txn.Version{Commit: stamp(), Deleted: rng.IntN(4) == 0}
			if !c.Put.Deleted {
				c.Put.Value = fmt.Append(nil, n)
			}
			c.Record = txn.Record{Start: stamp(), Commit: stamp()}
		}
		if done, want := f.try(key, c), m.write(c); done != want {
			f.Fatalf("write %d of %q, %+v: %v, want %v", n, key, c, done, want)
		}
		at, start := stamp(), stamp()
		f.want(key, at, start, m.read(at, start))
	}
	exist := 0
	for _, e := range f.all(txn.Range{Limit: 2}, span/2) {
		exist++
		if want := models[string(e.Key)].read(span/2, 0); !equal(e.Row, want) {
			f.Errorf("row %q\n got %+v\nwant %+v", e.Key, e.Row, want)
		}
	}
	for _, m := range models {
		if m.revision != 0 {
			exist--
		}
	}
	if exist != 0 {
		f.Errorf("the scan returned %d rows more than exist", exist)
	}
}

// counter is an oracle.
type counter struct{ n atomic.Uint64 }

func (c *counter) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	return isotone.NewTimestamp64(1, 0) + isotone.Timestamp64(c.n.Add(1)), ctx.Err()
}

// testTransactions runs transfers between accounts and wants every snapshot to have the same total.
func testTransactions(f *fixture) {
	const accounts, clients, transfers = 6, 4, 25
	db, err := txn.New(&counter{}, txn.Options{Stores: map[string]txn.Store{"s": f.store}, RunAttempts: 4096, LockTTL: txn.LockTTLDefault})
	if err != nil {
		f.Fatal(err)
	}
	defer db.Close()
	account := func(i int) []byte { return fmt.Append(nil, "account", i) }
	err = db.Run(f.ctx, func(tx *txn.Tx) error {
		for i := range accounts {
			if err := tx.Set("s", account(i), []byte("100")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(client)))
			for range transfers {
				from, to := rng.IntN(accounts), rng.IntN(accounts-1)
				if to >= from {
					to++
				}
				if err := transfer(f.ctx, db, account(from), account(to)); err != nil {
					f.Errorf("transfer: %v", err)
				}
				if err := f.audit(db, accounts*100); err != nil {
					f.Errorf("audit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := db.Collect(f.ctx, 0); err != nil {
		f.Errorf("collect: %v", err)
	}
	if err := f.audit(db, accounts*100); err != nil {
		f.Errorf("audit after garbage collection: %v", err)
	}
	for _, e := range f.all(txn.Range{Limit: 100}, 1<<62) {
		if len(e.Row.Lock) != 0 || e.Row.OldestVersion != e.Row.Newest || e.Row.OldestRecord != 0 {
			f.Errorf("row %q has garbage left: %+v", e.Key, e.Row)
		}
	}
}

func transfer(ctx context.Context, db *txn.DB, from, to []byte) error {
	return db.Run(ctx, func(tx *txn.Tx) error {
		for key, amount := range map[*[]byte]int{&from: -1, &to: 1} {
			v, _, err := tx.Get(ctx, "s", *key)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(v))
			if err != nil {
				return err
			}
			if err := tx.Set("s", *key, strconv.AppendInt(nil, int64(n+amount), 10)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *fixture) audit(db *txn.DB, want int) error {
	return db.View(f.ctx, func(tx *txn.Tx) error {
		total := 0
		for pair, err := range tx.All(f.ctx, "s", nil, nil) {
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(pair.Value))
			if err != nil {
				return err
			}
			total += n
		}
		if total != want {
			f.Errorf("snapshot %v has a total of %d, want %d", tx.Start(), total, want)
		}
		return nil
	})
}
