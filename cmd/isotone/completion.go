package main

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints what has a shell complete command lines of isotone. The scripts only ask
// completeCmd, so that they fit every version of the binary.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

//go:embed completion.bash completion.zsh completion.fish
var completionScripts embed.FS

// Help says how to install the scripts.
func (completionCmd) Help() string {
	return "For this shell; zsh needs compinit before:\n\n" +
		"  source <(isotone completion bash)\n" +
		"  source <(isotone completion zsh)\n" +
		"  isotone completion fish | source\n\n" +
		"For every new shell; bash with the package bash-completion, zsh with \"autoload -Uz compinit; compinit\" in ~/.zshrc:\n\n" +
		"  mkdir -p ~/.local/share/bash-completion/completions\n" +
		"  isotone completion bash > ~/.local/share/bash-completion/completions/isotone\n" +
		"  isotone completion zsh > \"${fpath[1]}/_isotone\"\n" +
		"  isotone completion fish > ~/.config/fish/completions/isotone.fish"
}

// Run prints the script.
func (c *completionCmd) Run(con console) error {
	script, err := completionScripts.ReadFile("completion." + c.Shell)
	if err != nil {
		return err
	}
	return printText(con.out, string(script))
}

func printText(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// completeCmd prints how the last word of a command line may be completed. The first line
// is words, files or dirs. After words, each line is a word, a tab, and what it means.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after isotone; the last one is not complete."`
}

// Run prints the completions.
func (c *completeCmd) Run(con console, app *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	found := complete(app.Model.Node, words)
	var text strings.Builder
	fmt.Fprintln(&text, found.kind)
	for _, w := range found.words {
		fmt.Fprintf(&text, "%s\t%s\n", w.text, w.meaning)
	}
	return printText(con.out, text.String())
}

// The kinds of completions, and what stands in the tag complete:"" of a setting besides words.
const (
	completeWords = "words"
	completeFiles = "files"
	completeDirs  = "dirs"
)

// completions are what a word may become.
type completions struct {
	kind  string
	words []completion // with completeWords
}

type completion struct{ text, meaning string }

// commandLine is what the words before the last one have chosen.
type commandLine struct {
	node      *kong.Node
	place     int        // positional arguments so far
	flag      *kong.Flag // the latest one, if its value or "=" follows
	wantValue bool       // the next word is the value of flag
	joined    bool       // the next word goes on with the one before it
	literal   bool       // "--" was seen: no more flags
	unknown   bool       // a command that does not exist
}

// complete returns what the last of words may become in the command line of app. The shells give
// "--flag=value" as one word; bash breaks it up into three, and "host:port" as well.
func complete(app *kong.Node, words []string) completions {
	if len(words) == 0 {
		words = []string{""}
	}
	if len(words) > 1 && words[0] == "help" {
		words = words[1:]
	}
	l := &commandLine{node: app}
	for _, w := range words[:len(words)-1] {
		l.take(w)
	}
	last := words[len(words)-1]
	switch last {
	case "=", ":":
		l.take(last)
		last = ""
	}
	return l.complete(last)
}

// take moves on by a complete word.
func (l *commandLine) take(w string) {
	switch {
	case w == "=" && l.flag != nil:
		l.wantValue = true
		return
	case w == ":":
		l.joined = true
		return
	case l.joined:
		l.joined = false
	case l.wantValue:
	case w == "--" && !l.literal:
		l.literal = true
	case strings.HasPrefix(w, "-") && !l.literal:
		l.takeFlag(w)
		return
	default:
		l.takeArgument(w)
	}
	l.flag, l.wantValue = nil, false
}

func (l *commandLine) takeFlag(w string) {
	name, _, valued := strings.Cut(w, "=")
	l.flag = l.findFlag(name)
	if valued {
		l.flag = nil
	}
	l.wantValue = l.flag != nil && !l.flag.IsBool()
}

func (l *commandLine) takeArgument(w string) {
	if len(l.node.Children) == 0 {
		l.place++
		return
	}
	for _, child := range l.node.Children {
		if child.Name == w {
			l.node = child
			return
		}
	}
	l.unknown = true
}

// complete returns what the last word may become.
func (l *commandLine) complete(last string) completions {
	name, prefix, valued := strings.Cut(last, "=")
	switch {
	case l.unknown || l.joined:
		return completions{kind: completeWords}
	case l.wantValue:
		return valueCompletions(l.flag.Value, "", last)
	case strings.HasPrefix(last, "-") && !l.literal && valued:
		if flag := l.findFlag(name); flag != nil {
			return valueCompletions(flag.Value, name+"=", prefix)
		}
		return completions{kind: completeWords}
	case strings.HasPrefix(last, "-") && !l.literal:
		return l.flags(last)
	case len(l.node.Children) > 0:
		return l.commands(last)
	}
	return l.argument(last)
}

// argument completes a positional argument. Where none follows, it proposes the flags.
func (l *commandLine) argument(last string) completions {
	args := l.node.Positional
	switch {
	case l.place < len(args):
		return valueCompletions(args[l.place], "", last)
	case len(args) > 0 && args[len(args)-1].IsCumulative():
		return valueCompletions(args[len(args)-1], "", last)
	case !l.literal:
		return l.flags(last)
	}
	return completions{kind: completeWords}
}

func (l *commandLine) commands(last string) completions {
	c := completions{kind: completeWords}
	for _, child := range l.node.Children {
		if !child.Hidden {
			c.add(last, child.Name, child.Help)
		}
	}
	if l.node.Type == kong.ApplicationNode {
		c.add(last, "help", "Show what a command does.")
	}
	return c
}

func (l *commandLine) flags(last string) completions {
	c := completions{kind: completeWords}
	for _, group := range l.node.AllFlags(true) {
		for _, flag := range group {
			c.add(last, "--"+flag.Name, flag.Help)
			if flag.Tag.Negatable != "" {
				c.add(last, "--no-"+flag.Name, "Not: "+flag.Help)
			}
		}
	}
	return c
}

// findFlag returns the flag that is written as name, or nil.
func (l *commandLine) findFlag(name string) *kong.Flag {
	for _, group := range l.node.AllFlags(true) {
		for _, flag := range group {
			if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) {
				return flag
			}
		}
	}
	return nil
}

// valueCompletions completes a value that has begun with last. Each completion begins with lead.
func valueCompletions(v *kong.Value, lead, last string) completions {
	values := v.Tag.Get("complete")
	switch {
	case values == completeFiles, values == completeDirs:
		return completions{kind: values}
	case values == "" && v.IsBool():
		values = "true,false"
	case values == "":
		values = v.Enum
	}
	c := completions{kind: completeWords}
	for text := range strings.SplitSeq(values, ",") {
		if text != "" {
			c.add(lead+last, lead+text, "")
		}
	}
	return c
}

// add proposes text if it begins with prefix. Only the first sentence of help is kept, which a
// shell shows beside it.
func (c *completions) add(prefix, text, help string) {
	if strings.HasPrefix(text, prefix) {
		meaning, _, _ := strings.Cut(help, ". ")
		c.words = append(c.words, completion{text, strings.TrimSuffix(meaning, ".")})
	}
}
