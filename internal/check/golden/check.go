package golden

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

var add = flag.Bool("golden.add", false, "add the items that the golden sets lack at the current level")

// Check calls read with every item of a kind, of every level, and compares the result with
// the meaning of the item. The set must have at least one.
//
// If the type that read returns gains a field that is not zero for older items, read must
// omit it for those.
func (s *Set) Check(t *testing.T, kind string, read func([]byte) (any, error)) {
	t.Helper()
	items := s.Items(kind)
	if len(items) == 0 {
		t.Errorf("golden: %s has no item of kind %s", s.dir, kind)
	}
	for _, i := range items {
		got, err := read(slices.Clone(i.Bytes))
		if err != nil {
			t.Errorf("%s: %v", &i, err)
			continue
		}
		i.Compare(t, got)
	}
}

// Compare fails the test unless got is the meaning of the item.
func (i *Item) Compare(t *testing.T, got any) {
	t.Helper()
	have, err := plain(got)
	if err != nil {
		t.Fatalf("%s: %v", i, err)
	}
	want, err := plain(i.Want)
	if err != nil {
		t.Fatalf("%s: %v", i, err)
	}
	if !reflect.DeepEqual(have, want) {
		text, _ := json.Marshal(have)
		t.Errorf("%s is read as\n%s\nbut means\n%s", i, text, i.Want)
	}
}

// Keep fails the test if the set lacks an item of the current level. With -golden.add it
// makes the item with sample and adds it instead. It never changes an existing item.
func (s *Set) Keep(t *testing.T, kind, name string, sample func() (b []byte, means any)) {
	t.Helper()
	i := Item{Level: Level, Kind: kind, Name: name}
	if slices.ContainsFunc(s.items, func(have Item) bool { return have.String() == i.String() }) {
		return
	}
	if !*add {
		t.Errorf("golden: %s lacks %s; -golden.add adds it", s.dir, &i)
		return
	}
	var means any
	i.Bytes, means = sample()
	tree, err := plain(means)
	if err == nil {
		i.Want, err = json.Marshal(tree)
	}
	if err == nil {
		err = s.write(&i)
	}
	if err != nil {
		t.Fatalf("golden: add %s: %v", &i, err)
	}
	s.items = append(s.items, i)
}

// write appends an item to the files of its set.
func (s *Set) write(i *Item) error {
	dir := filepath.Join(s.dir, levelName(i.Level))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := i.text(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, i.Kind+".txt")
	if _, err := os.Stat(path); err == nil {
		text = "\n" + text
	}
	if err := appendFile(path, text); err != nil {
		return err
	}
	return appendFile(filepath.Join(s.dir, sumsName), i.sum()+"  "+i.String()+"\n")
}

// text returns the lines of an item. If the item is large, it writes its file.
func (i *Item) text(dir string) (string, error) {
	var b bytes.Buffer
	b.WriteString("[" + i.Name + "]\n")
	if len(i.Bytes) <= hexBytesMax {
		b.WriteString("hex " + hex.EncodeToString(i.Bytes) + "\n")
	} else {
		name := i.Kind + "-" + i.Name + ".gz"
		small, err := compressed(i.Bytes)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), small, 0o644); err != nil {
			return "", err
		}
		b.WriteString("file " + name + "\n")
	}
	b.WriteString("want " + string(i.Want) + "\n")
	return b.String(), nil
}

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// plain returns v as the tree that decoding its JSON gives, without zero values.
func plain(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	return prune(tree), nil
}

// prune removes zero fields from a tree. Elements of lists become nil instead.
func prune(tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		for key, field := range v {
			if v[key] = prune(field); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) > 0 {
			return v
		}
		return nil
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
		if len(v) > 0 {
			return v
		}
		return nil
	case bool:
		if v {
			return v
		}
		return nil
	case string:
		if v != "" {
			return v
		}
		return nil
	case json.Number:
		if v != "0" {
			return v
		}
		return nil
	}
	return tree
}
