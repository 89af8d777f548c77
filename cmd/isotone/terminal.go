package main

import (
	"io"
	"os"
)

// colored reports whether w shows colours and they are wanted: it is a terminal that can, and NO_COLOR
// (https://no-color.org) is not set.
func colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// paint is a colour or a weight of text as in ECMA-48; see [painted].
type paint string

const (
	paintBold paint = "1"
	paintDim  paint = "2"
	paintCyan paint = "36"
)

// painted returns text in a colour, if on.
func painted(on bool, p paint, text string) string {
	if !on || text == "" {
		return text
	}
	return "\x1b[" + string(p) + "m" + text + "\x1b[0m"
}
