package backup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func sample() Document {
	d := Document{
		ClusterID: "00000000deadbeef", Taken: time.UnixMilli(1_790_000_000_123), Level: 3, Index: 1 << 60, Ceiling: 1_790_000_000_000_000_000,
		State: []byte{3, 0, 0, 255},
	}
	d.Seal()
	return d
}

func sampleSeed() Seed {
	return Seed{NodeID: 2, Founders: []uint64{1, 2, 3}, Floor: 1_790_000_010_000_000_000, Backup: sample()}
}

func TestDocument_ComesBackAsItWas(t *testing.T) {
	d := sample()
	got, err := Decode(d.Encode())
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("%+v, %v; want %+v", got, err, d)
	}
	compact := strings.Join(strings.Fields(string(d.Encode())), "")
	if _, err := Decode([]byte(compact)); err != nil {
		t.Errorf("without white space: %v", err)
	}
	s := sampleSeed()
	if got, err := DecodeSeed(s.Encode()); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v; want %+v", got, err, s)
	}
}

// TestDecode_NoticesAnyDamage changes and cuts off each byte. What is accepted means the same.
func TestDecode_NoticesAnyDamage(t *testing.T) {
	d, s := sample(), sampleSeed()
	for i := range d.Encode() {
		for _, bad := range [][]byte{damage(d.Encode(), i), d.Encode()[:i]} {
			if got, err := Decode(bad); err == nil && !reflect.DeepEqual(got, d) {
				t.Fatalf("accepted with byte %d damaged: %+v", i, got)
			}
		}
	}
	for i := range s.Encode() {
		for _, bad := range [][]byte{damage(s.Encode(), i), s.Encode()[:i]} {
			if got, err := DecodeSeed(bad); err == nil && !reflect.DeepEqual(got, s) {
				t.Fatalf("accepted with byte %d damaged: %+v", i, got)
			}
		}
	}
}

func damage(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

func TestDecode_SaysWhatIsWrong(t *testing.T) {
	d := sample()
	whole := string(d.Encode())
	for want, text := range map[string]string{
		"not a backup, or damaged or truncated": whole[:len(whole)/2],
		"no format number":                      "{}",
		"format 2; this version reads format 1": strings.Replace(whole, `"format": 1`, `"format": 2, "more": 3`, 1),
		"unknown field":                         strings.Replace(whole, `"format": 1`, `"format": 1, "more": 3`, 1),
		"checksum does not match":               strings.Replace(whole, `"level": 3`, `"level": 2`, 1),
		"after top-level value":                 whole + "{}",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	d, s := sample(), sampleSeed()
	f.Add(d.Encode())
	f.Add(s.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := Decode(b); err == nil {
			if again, err := Decode(d.Encode()); err != nil || again.Sum != d.Sum {
				t.Errorf("%+v becomes %+v, %v", d, again, err)
			}
		}
		if s, err := DecodeSeed(b); err == nil {
			if again, err := DecodeSeed(s.Encode()); err != nil || again.Sum != s.Sum {
				t.Errorf("%+v becomes %+v, %v", s, again, err)
			}
		}
	})
}

func TestCheckNode_ComparesNodeAndFounders(t *testing.T) {
	s := sampleSeed()
	if err := s.CheckNode(2, []uint64{3, 1, 2}); err != nil {
		t.Error(err)
	}
	if err := s.CheckNode(1, []uint64{1, 2, 3}); err == nil || !strings.Contains(err.Error(), "NODE_ID=2") {
		t.Errorf("another node: %v", err)
	}
	if err := s.CheckNode(2, []uint64{2}); err == nil || !strings.Contains(err.Error(), "same PEERS") {
		t.Errorf("other founders: %v", err)
	}
}

// TestWrite_LeavesTheOldFileOrTheNewOne looks at the file after each step.
func TestWrite_LeavesTheOldFileOrTheNewOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Write(path, []byte("old"), false, nil); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), false, nil); !errors.Is(err, ErrExists) {
		t.Errorf("an existing file: %v", err)
	}
	var steps []string
	err := Write(path, []byte("new"), true, func(step string) {
		steps = append(steps, step)
		want := "old"
		if step == "renamed" {
			want = "new"
		}
		if got, err := Read(path); string(got) != want || err != nil {
			t.Errorf("after %q: %q, %v", step, got, err)
		}
	})
	if err != nil || len(steps) != 5 {
		t.Errorf("steps %q, %v", steps, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	left, _ := filepath.Glob(path + ".*")
	if len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestReadSeed_TellsNoneFromADamagedOne(t *testing.T) {
	dir := t.TempDir()
	if s, err := ReadSeed(dir); s != nil || err != nil {
		t.Errorf("without one: %v, %v", s, err)
	}
	if err := RemoveSeed(dir); err != nil {
		t.Error(err)
	}
	s := sampleSeed()
	part := filepath.Join(dir, SeedName+".123.part")
	if err := os.WriteFile(part, s.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSeed(dir); err == nil || !strings.Contains(err.Error(), "was interrupted") {
		t.Errorf("interrupted: %v", err)
	}
	if err := WriteSeed(dir, &s, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSeed(dir); err != nil || !reflect.DeepEqual(*got, s) || exists(part) {
		t.Errorf("%+v, %v, %v", got, err, exists(part))
	}
	if err := Write(filepath.Join(dir, SeedName), s.Encode()[1:], true, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSeed(dir); err == nil || !strings.Contains(err.Error(), "restore the backup again") {
		t.Errorf("damaged: %v", err)
	}
	if err := RemoveSeed(dir); err != nil {
		t.Error(err)
	}
	if s, err := ReadSeed(dir); s != nil || err != nil {
		t.Errorf("removed: %v, %v", s, err)
	}
}

// What a node can have as a snapshot can be restored.
func TestRead_TakesTheLargestState(t *testing.T) {
	d := sample()
	d.State = bytes.Repeat([]byte{255}, 16<<20)
	d.Seal()
	s := sampleSeed()
	s.Backup = d
	dir := t.TempDir()
	if err := WriteSeed(dir, &s, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSeed(dir); err != nil || !reflect.DeepEqual(*got, s) {
		t.Error(err)
	}
}
