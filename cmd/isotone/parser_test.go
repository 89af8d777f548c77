package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestParser_OfOneCommandSaysWhatThatOfAllDoes, in the help of everything, and about what is wrong.
func TestParser_OfOneCommandSaysWhatThatOfAllDoes(t *testing.T) {
	oneGoroutine(t)
	var out bytes.Buffer
	options := []kong.Option{kong.Name("isotone"), kong.Writers(&out, &out), kong.Exit(func(int) {}), kong.ConfigureHelp(kong.HelpOptions{Compact: true})}
	all, err := kong.New(&cli{}, options...)
	if err != nil {
		t.Fatal(err)
	}
	said := func(parser *kong.Kong, args []string) string {
		out.Reset()
		if _, err := parser.Parse(args); err != nil {
			return out.String() + parseHint(parser.Model, args, err)
		}
		return out.String()
	}
	seen, own := 0, map[string]*kong.Kong{}
	check := kong.Visit(all.Model, func(node kong.Visitable, next kong.Next) error {
		n, ok := node.(*kong.Node)
		if !ok || n.Type != kong.CommandNode {
			return next(nil)
		}
		seen++
		path := strings.Fields(n.FullPath())[1:]
		for _, more := range []string{"--help", "--nonsense", "nonsense", "--password=x", "--endpoint=", "--timeout=x"} {
			args := append(path[:len(path):len(path)], more)
			one := own[path[0]]
			if one == nil {
				if one, err = newParser(new(cli), args, options...); err != nil {
					t.Fatal(err)
				}
				own[path[0]] = one
			}
			if got, want := said(one, args), said(all, args); got != want {
				t.Errorf("%q:\n%s\nwant\n%s", args, got, want)
			}
		}
		return next(nil)
	})
	if check != nil || seen < 40 {
		t.Errorf("%v, %d commands", check, seen)
	}
}

func TestParser_HasNoCommandsThatNobodyNames(t *testing.T) {
	all := reflect.TypeFor[cli]().NumField()
	for name, want := range map[string]int{"version": 1, "serve": 1, "man": all, "completion": all, "complete": all, "--help": all, "nonsense": all} {
		parser, err := newParser(new(cli), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(parser.Model.Children); got != want {
			t.Errorf("%s: %d commands, want %d", name, got, want)
		}
	}
}
