package live_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/live"
)

func TestParse_Good(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                   nil,
		" \t":                                nil,
		"a=file:x.json":                      {"a file:x.json"},
		"a=FILE:x":                           {"a file:x"},
		"a=file:/x/y=z.json , b-1=file:./y":  {"a file:/x/y=z.json", "b-1 file:./y"},
		"a=file:///x/y":                      {"a file:/x/y"},
		"a=file://localhost/x":               {"a file:/x"},
		"v=redis://host:1/2#votes":           {"v redis://host:1/2#votes"},
		"v=redis://host#a%2Cb":               {"v redis://host#a%2Cb"},
		"v=rediss://u:secret@[::1]:6380/#k":  {"v rediss://[::1]:6380/#k"},
		"v=redis://:secret@host/0#k":         {"v redis://host/0#k"},
		"f=https://u:secret@h.example/a?t=s": {"f https://h.example/a"},
		"f=HTTP://h:80/a%2Cb":                {"f http://h:80/a%2Cb"},
		strings.Repeat("a", 64) + "=file:x":  {strings.Repeat("a", 64) + " file:x"},
	} {
		sources, err := live.Parse(text)
		var got []string
		for _, s := range sources {
			got = append(got, s.Name()+" "+live.SourceText(s))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestParse_FaultsSayWhatWasGiven(t *testing.T) {
	for text, want := range map[string]string{
		"foo":                           `"foo": want name=source`,
		"a=file:x, scores.json":         `"scores.json": want name=source`,
		"Foo=file:x":                    `"Foo": want a name`,
		"/srv/x":                        "entry 1: want name=source",
		"redis://:secret@h":             "entry 1: want name=source",
		"a=redis://:se,cret@h#k":        `"a": want a valid URL`, // and entry 2, which has an @
		"file:x":                        "entry 1: want name=source",
		"a=file:x,b=http:se,cret,x=y:z": `"b": want a URL`,
	} {
		_, err := live.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParse_ListsEveryFaultAndNoSecret(t *testing.T) {
	text := "state=file:x,a=file:x,a=redis://u:secret@h,B=gopher://secret,,=file:," +
		"b=redis://secret@h#k,c=redis://h/x#k,d=redis://h?secret#k,e=http://h:secret/,f=http:///x,g=https://h#x," +
		"h=file://secret/x,i=http:secret,j=secret,k=redis://h:0#k,l=http://h:65536/," + strings.Repeat("a", 65) + "=file:x,m=http://%zz"
	want := []string{
		`"state": this name is reserved`,
		`"a": want every name once`,
		`"a": want the key`,
		`entry 4: want a name`,
		`entry 4: want a source`,
		`entry 5: want name=source`,
		`entry 6: want a name`,
		`entry 6: want a path`,
		`"b": want user:password`,
		`"c": want the number`,
		`"d": want a URL without "?"`,
		`"e": want a valid URL`,
		`"f": want a URL with a host`,
		`"g": want a URL without "#"`,
		`"h": want file:PATH`,
		`"i": want a URL with a host`,
		`"j": want a source`,
		`"k": want a URL with a host, and a port`,
		`"l": want a URL with a host, and a port`,
		`entry 18: want a name`,
		`"m": want a valid URL`,
	}
	sources, err := live.Parse(text)
	var faults live.Faults
	if sources != nil || !errors.As(err, &faults) || !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatalf("%v, %v", sources, err)
	}
	for i := range max(len(want), len(faults)) {
		if i >= len(want) || i >= len(faults) || !strings.HasPrefix(faults[i].Error(), want[i]) {
			t.Fatalf("fault %d of %q, want %q", i, faults, want)
		}
		if !strings.Contains(err.Error(), faults[i].Error()) {
			t.Errorf("the message lacks %v", faults[i])
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a secret in %v", err)
	}
}

func TestParse_IsBounded(t *testing.T) {
	var many []string
	for i := range live.DocumentsMax + 1 {
		many = append(many, fmt.Sprintf("d%d=file:x", i))
	}
	if _, err := live.Parse(strings.Join(many[1:], ",")); err != nil {
		t.Error(err)
	}
	for _, text := range []string{strings.Join(many, ","), "a=file:" + strings.Repeat("x", 64<<10)} {
		if _, err := live.Parse(text); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%.30q…: %v", text, err)
		}
	}
}

func TestParseOrigins(t *testing.T) {
	for text, want := range map[string][]string{
		"":                            nil,
		"*":                           {"*"},
		"https://a.example":           {"https://a.example"},
		"http://a:81 , https://[::1]": {"http://a:81", "https://[::1]"},
	} {
		if got, err := live.ParseOrigins(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, faults := range map[string]int{
		"*,https://a": 1, "a.example": 1, "https://A": 1, "https://a/": 1, "null": 1, ",": 2, "https://a,https://a": 1,
		"https://u@a": 1, "https://a?": 1, "https://a,b,c": 2, strings.Repeat("x", 65<<10): 1,
	} {
		_, err := live.ParseOrigins(text)
		var got live.Faults
		if !errors.As(err, &got) || len(got) != faults {
			t.Errorf("%.30q: %v, want %d faults", text, err, faults)
		}
	}
}

func TestNew_ListsEveryFault(t *testing.T) {
	v := newVariable("1")
	_, err := live.New(live.Config{
		Sources:  []live.Source{v.source("a"), v.source("a"), v.source("A"), live.Func("b", nil), {}},
		Interval: live.IntervalMin - 1, SizeMax: live.SizeLimit + 1, WriteTimeout: -1, Origins: []string{"x"},
	})
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, text := range []string{`"a" is given twice`, `"A": want a name`, `"b": want a name`, `"": want a name`, "interval", "bytes", "negative", "x: want scheme"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q lacks %q", err, text)
		}
	}
	if v.loads.Load() != 0 {
		t.Error("a refused set has loaded")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("scores=file:scores.json,votes=redis://:pw@host:6379/0#votes,feed=https://h/x?y")
	f.Add("a=,=,b=rediss://[::1]#%2c,,c=file://localhost/")
	f.Fuzz(func(t *testing.T, text string) {
		sources, err := live.Parse(text)
		if err != nil {
			if !errors.Is(err, isotone.ErrInvalidArgument) || sources != nil {
				t.Fatalf("%v, %v", sources, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, s := range sources {
			if seen[s.Name()] || s.Name() == "state" || s.Name() == "" || live.SourceText(s) == "" {
				t.Fatalf("%q", s.Name())
			}
			seen[s.Name()] = true
		}
		if len(sources) > live.DocumentsMax || len(sources) > strings.Count(text, ",")+1 {
			t.Fatal(len(sources))
		}
	})
}
