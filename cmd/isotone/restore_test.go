package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/backup"
)

// prepareBackup writes the backup of a cluster that had come to ceiling when it was taken, and returns its path.
func prepareBackup(t *testing.T, ceiling, taken time.Time) string {
	t.Helper()
	state := oracle.State{ClusterID: 7, Level: oracle.LevelNewest, Ceiling: uint64(ceiling.UnixNano()), Members: []oracle.Member{{ID: 1}}}
	d := backup.Document{ClusterID: "0000000000000007", Level: oracle.LevelNewest, Ceiling: state.Ceiling, State: state.Append(nil), Taken: taken}
	d.Seal()
	path := filepath.Join(t.TempDir(), "backup")
	if err := backup.Write(path, d.Encode(), false, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// restored runs restore and returns where the cluster begins.
func restored(t *testing.T, dir, path string, flags ...string) uint64 {
	t.Helper()
	var s restoreSummary
	code, out, text := command(append([]string{"restore", "--data-dir", dir, "--yes", "--json", path}, flags...)...)
	if code != 0 || json.Unmarshal([]byte(out), &s) != nil {
		t.Fatalf("%d, %q, %q", code, out, text)
	}
	if seed, err := backup.ReadSeed(dir); err != nil || seed.Floor != s.Floor {
		t.Fatalf("prepared: %+v, %v", seed, err)
	}
	return s.Floor
}

// TestRestore_ASecondTimeBeginsAboveTheFirst whatever the operator says then: a note beside the backup knows.
func TestRestore_ASecondTimeBeginsAboveTheFirst(t *testing.T) {
	path := prepareBackup(t, time.Now(), time.Now())
	dir := func() string { return filepath.Join(t.TempDir(), "data") }
	last := restored(t, dir(), path, "--floor", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if ahead := time.Until(time.Unix(0, int64(last))); ahead < time.Hour {
		t.Fatalf("the first begins %v ahead of the clock", ahead)
	}
	for _, flags := range [][]string{
		{"--margin", "10s"},
		{"--floor", strconv.FormatUint(last, 10)},
		{"--floor", time.Now().Add(time.Minute).UTC().Format(time.RFC3339)},
		{"--margin", "1s"},
	} {
		next := restored(t, dir(), path, flags...)
		if next < last+uint64(time.Second) {
			t.Errorf("%q: begins at %d, and the one before at %d", flags, next, last)
		}
		last = next
	}
}

// TestRestore_RepeatedOnOneDirectoryNeverLowersIt, and does not take its own note for that of another cluster.
func TestRestore_RepeatedOnOneDirectoryNeverLowersIt(t *testing.T) {
	path, dir := prepareBackup(t, time.Now(), time.Now()), filepath.Join(t.TempDir(), "data")
	first := restored(t, dir, path, "--floor", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if again := restored(t, dir, path); again != first {
		t.Errorf("it began at %d, and begins at %d", first, again)
	}
	if raised := restored(t, dir, path, "--floor", time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339)); raised < first+uint64(50*time.Minute) {
		t.Errorf("it began at %d, and with a higher floor at %d", first, raised)
	}
}

func TestRestore_ANoteThatCannotBeUsedIsNamed(t *testing.T) {
	path, dir := prepareBackup(t, time.Now(), time.Now()), filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(backup.NotePath(path, 1), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, text := command("restore", "--data-dir", dir, "--yes", path)
	if code == 0 || !strings.Contains(text, "backup.restored-1") || !strings.Contains(text, "--floor") {
		t.Errorf("%d, %q", code, text)
	}
	if code, _, text := command("restore", "--data-dir", dir, "--yes", "--force", path); code != 0 || !strings.Contains(text, "warning: ") {
		t.Errorf("with --force: %d, %q", code, text)
	}
}

// TestRestore_ANoteThatCannotBeReadComesWithAdvice. A user with all rights may not read these either.
func TestRestore_ANoteThatCannotBeReadComesWithAdvice(t *testing.T) {
	for name, make := range map[string]func(note string) error{
		"a directory":         func(note string) error { return os.Mkdir(note, 0o700) },
		"a link to the same":  func(note string) error { return os.Symlink(note, note) },
		"a link into nowhere": func(note string) error { return os.Symlink(note+"-moved", note) },
	} {
		path, dir := prepareBackup(t, time.Now(), time.Now()), filepath.Join(t.TempDir(), "data")
		if err := make(backup.NotePath(path, 2)); err != nil {
			t.Fatal(err)
		}
		code, _, text := command("restore", "--data-dir", dir, "--yes", path)
		if code == 0 || !strings.Contains(text, "backup.restored-2, which says where a cluster began") || !strings.Contains(text, "as a user who may read it") {
			t.Errorf("%s: %d, %q", name, code, text)
		}
		if code, _, text := command("restore", "--data-dir", dir, "--yes", "--force", path); code != 0 || !strings.Contains(text, "warning: ") {
			t.Errorf("%s, with --force: %d, %q", name, code, text)
		}
	}
}

// TestRestore_NotesOfAllNodesCount: the second cluster may have other nodes.
func TestRestore_NotesOfAllNodesCount(t *testing.T) {
	path := prepareBackup(t, time.Now(), time.Now())
	dir := func() string { return filepath.Join(t.TempDir(), "data") }
	first := restored(t, dir(), path, "--floor", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	for _, node := range []string{"2", "4"} {
		if next := restored(t, dir(), path, "--node-id", node, "--peers", node+"=10.0.0.1:60001"); next <= first {
			t.Errorf("node %s begins at %d, and node 1 began at %d", node, next, first)
		}
	}
}

// TestRestore_WhatFailsLeavesNoNote: another try would begin later, each time.
func TestRestore_WhatFailsLeavesNoNote(t *testing.T) {
	path := prepareBackup(t, time.Now(), time.Now())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, text := command("restore", "--data-dir", filepath.Join(file, "data"), "--yes", path); code == 0 {
		t.Errorf("a directory below a file: %q", text)
	}
	if notes, err := filepath.Glob(path + ".restored-*"); err != nil || len(notes) > 0 {
		t.Errorf("%q, %v", notes, err)
	}
}

// TestRestore_RefusesWhatIsPreparedForAnother, which would be lost, and an empty --floor, as of a variable that is not set.
func TestRestore_RefusesWhatIsPreparedForAnother(t *testing.T) {
	path, dir := prepareBackup(t, time.Now(), time.Now()), filepath.Join(t.TempDir(), "data")
	d, _, err := readBackup(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.ClusterID = "00000000000000aa"
	d.Seal()
	if err := backup.WriteSeed(dir, &backup.Seed{NodeID: 1, Founders: []uint64{1}, Floor: 1, Backup: d}, nil); err != nil {
		t.Fatal(err)
	}
	if code, _, text := command("restore", "--data-dir", dir, "--yes", path); code == 0 || !strings.Contains(text, "00000000000000aa") || !strings.Contains(text, "--force") {
		t.Errorf("%d, %q", code, text)
	}
	if code, _, text := command("restore", "--data-dir", dir, "--yes", "--floor", "", path); code == 0 || !strings.Contains(text, "--floor") {
		t.Errorf("an empty floor: %d, %q", code, text)
	}
	restored(t, dir, path, "--force")
}

func TestRestore_RefusesWhatItCannotUse(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, spoil func(*backup.Document)) string {
		state := oracle.State{ClusterID: 7, Level: oracle.LevelNewest, Ceiling: 1000, Members: []oracle.Member{{ID: 1}}}
		d := backup.Document{ClusterID: "0000000000000007", Level: oracle.LevelNewest, Ceiling: 1000, State: state.Append(nil), Taken: time.Now()}
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
		"contradicts itself": {write("level", func(d *backup.Document) { d.Level++ }), "--yes"},
		"cannot be read":     {write("state", func(d *backup.Document) { d.State = []byte{77} }), "--yes"},
		"JOIN is set":        {good, "--yes", "--join", "localhost:1"},
		"--margin":           {good, "--yes", "--margin", "25h"},
		"PEERS=1=HOST:PORT":  {good, "--yes", "--node-id", "2"},
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
		t.Fatalf("a good one: %d, %q, %q", code, out, text)
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

// TestRecover_AgainRaisesWhatIsPrepared has a directory whose data is set aside already, as recover leaves it.
func TestRecover_AgainRaisesWhatIsPrepared(t *testing.T) {
	dir := t.TempDir()
	d, _, err := readBackup(prepareBackup(t, time.Now(), time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	first := uint64(time.Now().UnixNano())
	if err := backup.WriteSeed(dir, &backup.Seed{NodeID: 1, Founders: []uint64{1}, Floor: first, Backup: d}, nil); err != nil {
		t.Fatal(err)
	}
	recovered := func(flags ...string) uint64 {
		t.Helper()
		code, out, text := command(append([]string{"recover", "--force-new-cluster", "--data-dir", dir, "--yes", "--json"}, flags...)...)
		var s restoreSummary
		if code != 0 || json.Unmarshal([]byte(out), &s) != nil {
			t.Fatalf("%d, %q, %q", code, out, text)
		}
		if seed, err := backup.ReadSeed(dir); err != nil || seed.Floor != s.Floor {
			t.Fatalf("prepared: %+v, %v", seed, err)
		}
		return s.Floor
	}
	byClock := recovered()
	if byClock < first+uint64(20*time.Second) {
		t.Errorf("the clock has gone on, and it begins at %d, %d before", byClock, first)
	}
	higher := time.Now().Add(5 * time.Minute)
	byFloor := recovered("--floor", higher.UTC().Format(time.RFC3339))
	if byFloor < uint64(higher.UnixNano()) {
		t.Errorf("begins at %d, below --floor", byFloor)
	}
	if byMargin := recovered("--margin", "10m"); byMargin < byFloor+uint64(4*time.Minute) {
		t.Errorf("begins at %d with a margin of 10 minutes", byMargin)
	}
	if again := recovered(); again < byFloor {
		t.Errorf("a beginning of %d was lowered to %d", byFloor, again)
	}
	if code, _, text := command("recover", "--force-new-cluster", "--data-dir", dir, "--yes", "--floor", "yesterday"); code == 0 || !strings.Contains(text, "--floor") {
		t.Errorf("%d, %q", code, text)
	}
}

// TestRestore_ReadsFloorsInEveryForm, and keeps room for time after them, whatever force.
func TestRestore_ReadsFloorsInEveryForm(t *testing.T) {
	floor := isotone.Timestamp{Time: uint64(time.Now().Add(time.Hour).UnixNano())}
	wide := isotone.Timestamp64From(floor)
	dir := func() string { return filepath.Join(t.TempDir(), "data") }
	for text, want := range map[string]uint64{
		floor.String(): floor.Time, fmt.Sprint(floor.Time): floor.Time, nanoTime(floor.Time): floor.Time, wide.String(): wide.Timestamp().Time,
	} {
		if got := restored(t, dir(), prepareBackup(t, time.Now(), time.Now()), "--floor", text); got != want+1+uint64(10*time.Second) {
			t.Errorf("--floor %s begins at %s", text, nanoTime(got))
		}
	}
	for text, want := range map[string]string{
		"5": "cannot be a floor", "2080-07-10T17:30:10Z": "", "2080-07-10T17:30:25Z": "must not begin after 2080-07-10T17:30:30Z",
		"2080-07-10T17:30:31Z": "not after 2080-07-10T17:30:30Z", "9223372036854775805": "not after 2080-07-10T17:30:30Z",
	} {
		path := prepareBackup(t, time.Now(), time.Now())
		code, _, told := command("restore", "--data-dir", dir(), "--floor", text, "--force", "--yes", path)
		if (code == 0) != (want == "") || !strings.Contains(told, want) {
			t.Errorf("--floor %s --force: %d, %q, want %q", text, code, told, want)
		}
	}
}
