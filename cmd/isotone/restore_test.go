package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/backup"
)

func TestRestore_TheFloorIsAboveBackupClockAndFlag(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ns := func(after time.Duration) uint64 { return uint64(now.Add(after).UnixNano()) }
	for name, tc := range map[string]struct {
		ceiling uint64
		taken   time.Duration // before now
		flags   restoreFlags
		want    uint64
		err     string
	}{
		"the clock":              {ns(-time.Hour), time.Hour, restoreFlags{Margin: 10 * time.Second}, ns(10*time.Second + replica.ClientFloorAheadMax), ""},
		"the backup":             {ns(time.Hour), 0, restoreFlags{Margin: 10 * time.Second}, ns(time.Hour + 10*time.Second), ""},
		"the backup, later":      {ns(time.Hour), 1000 * time.Second, restoreFlags{}, ns(time.Hour + time.Second), ""},
		"the flag":               {ns(0), 0, restoreFlags{Floor: "2026-11-22T13:00:00Z"}, ns(time.Hour) + 1, ""},
		"a flag that is below":   {ns(0), 0, restoreFlags{Floor: "5", Margin: 1}, ns(replica.ClientFloorAheadMax) + 1, ""},
		"no timestamp":           {ns(0), 0, restoreFlags{Floor: "yesterday"}, 0, "no timestamp"},
		"a flag of days":         {ns(0), 0, restoreFlags{Floor: "2026-11-24T12:00:00Z"}, 0, "--force"},
		"a flag of days, forced": {ns(0), 0, restoreFlags{Floor: "2026-11-24T12:00:00Z", Force: true}, ns(48*time.Hour) + 1, ""},
		"a backup of days":       {ns(48 * time.Hour), 0, restoreFlags{}, 0, "is the clock right"},
		"the clock is behind":    {ns(-time.Hour), -time.Minute, restoreFlags{Margin: 10 * time.Second}, 0, "set the clock"},
		"the end of time":        {math.MaxInt64 - 2, 0, restoreFlags{Margin: time.Second, Force: true}, 0, "2262"},
	} {
		d := backup.Document{Ceiling: tc.ceiling, Taken: now.Add(-tc.taken)}
		got, err := tc.flags.floorAbove(d, now)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %d, %v; want %d, %q", name, got, err, tc.want, tc.err)
		}
	}
}

// TestRestore_RestoringOneBackupAgainBeginsLater has a backup whose ceiling is far ahead of the
// clock.
func TestRestore_RestoringOneBackupAgainBeginsLater(t *testing.T) {
	now, last := time.Now(), uint64(0)
	f := restoreFlags{Margin: time.Second, Force: true}
	d := backup.Document{Ceiling: uint64(now.Add(time.Hour).UnixNano()), Taken: now}
	for range 100 {
		now = now.Add(50 * time.Minute / 10)
		floor, err := f.floorAbove(d, now)
		if err != nil || floor <= last+1000 { // a nanosecond for each reservation
			t.Fatalf("%d after %d, %v", floor, last, err)
		}
		last = floor
	}
}

func TestRestore_RefusesWhatItCannotUse(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, spoil func(*backup.Document)) string {
		state := oracle.State{ClusterID: 7, Level: 3, Ceiling: 1000, Members: []oracle.Member{{ID: 1}}}
		d := backup.Document{ClusterID: "0000000000000007", Level: 3, Ceiling: 1000, State: state.Append(nil), Taken: time.Now()}
		spoil(&d)
		d.Seal()
		path := filepath.Join(dir, name)
		if err := backup.Write(path, d.Encode(), false, nil); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", func(*backup.Document) {})
	for want, args := range map[string][]string{
		"no such file":       {filepath.Join(dir, "none"), "--yes"},
		"contradicts itself": {write("level", func(d *backup.Document) { d.Level = 2 }), "--yes"},
		"cannot be read":     {write("state", func(d *backup.Document) { d.State = []byte{77} }), "--yes"},
		"JOIN is set":        {good, "--yes", "--join", "localhost:1"},
		"--margin":           {good, "--yes", "--margin", "25h"},
		"only DNS knows":     {good, "--yes", "--peers", "dns+srv:isotone?count=3&id=priority"},
	} {
		data := filepath.Join(dir, "data")
		code, _, text := command(append([]string{"restore", "--data-dir", data}, args...)...)
		if code == 0 || !strings.Contains(text, want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, text, want)
		}
		if seed, err := backup.ReadSeed(data); seed != nil || err != nil {
			t.Errorf("%q: %+v, %v", args, seed, err)
		}
	}
	code, out, text := command("restore", "--data-dir", filepath.Join(dir, "data"), "--yes", good)
	if code != 0 || !strings.Contains(out, "cluster 0000000000000007") {
		t.Errorf("a good one: %d, %q, %q", code, out, text)
	}
	if code, out, text := command("restore", "--data-dir", filepath.Join(dir, "srv"), "--peers", "dns+srv:isotone?count=3", "--yes", "--json", good); code != 0 || !strings.Contains(out, `"founders":[1,2,3]`) {
		t.Errorf("with PEERS in DNS: %d, %q, %q", code, out, text)
	}
	if code, _, text := command("backup", "--data-dir", filepath.Join(dir, "data"), filepath.Join(dir, "new")); code != 1 || !strings.Contains(text, "holds no data") {
		t.Errorf("a backup of no data: %d, %q", code, text)
	}
	if code, _, text := command("serve", "--data-dir", filepath.Join(dir, "data"), "--node-id", "2", "--http-port", "0", "--raft-addr", "127.0.0.1:0", "--thrift-port", "0"); code != 1 || !strings.Contains(text, "NODE_ID=1") {
		t.Errorf("another node: %d, %q", code, text)
	}
	if code, _, text := command("serve", "--data-dir", filepath.Join(dir, "data"), "--join", "localhost:1", "--http-port", "0", "--raft-addr", "127.0.0.1:0", "--thrift-port", "0"); code != 1 || !strings.Contains(text, "without JOIN") {
		t.Errorf("with JOIN: %d, %q", code, text)
	}
}
