package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSet_NoticesWhatIsGoneOrChanged adds items, and then corrupts their files.
func TestSet_NoticesWhatIsGoneOrChanged(t *testing.T) {
	dir := t.TempDir()
	*add = true
	s := Open(t, dir)
	for _, name := range []string{"small", "large"} {
		s.Keep(t, "kind", name, func() ([]byte, any) {
			return []byte(strings.Repeat(name, hexBytesMax/6)), map[string]any{"Name": name, "Zero": 0}
		})
	}
	*add = false
	s = Open(t, dir)
	s.Keep(t, "kind", "small", func() ([]byte, any) { t.Error("an existing item was made again"); return nil, nil })
	s.Check(t, "kind", func(b []byte) (any, error) {
		return map[string]any{"Name": string(b[:5]), "New": []string{}}, nil
	})
	if len(s.Items("kind")) != 2 || len(s.faults()) > 0 {
		t.Fatalf("%d items, %v", len(s.items), s.faults())
	}
	items := filepath.Join(dir, levelName(Level), "kind.txt")
	text, err := os.ReadFile(items)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n\n")
	for spoiled, want := range map[string]string{
		strings.Replace(string(text), `"small"`, `"other"`, 1): "was changed",
		strings.Replace(string(text), "hex 73", "hex 74", 1):   "was changed",
		second:                      "is missing",
		string(text) + "\n" + first: "twice",
	} {
		if err := os.WriteFile(items, []byte(spoiled), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Set{dir: dir}
		if err := s.load(); err != nil {
			t.Fatal(err)
		}
		if faults := s.faults(); len(faults) != 1 || !strings.Contains(faults[0], want) {
			t.Errorf("%q, want %q", faults, want)
		}
	}
}
