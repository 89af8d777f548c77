package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/isotone/isotone/internal/inspect/decode"
	"github.com/isotone/isotone/snowflake"
)

// decodeCmd explains values of Isotone. It asks no node.
type decodeCmd struct {
	Values []string `arg:"" optional:"" name:"value" help:"Timestamps in hexadecimal, of 64 bits or as TIME:INDEX; PD's timestamps; Snowflake IDs in decimal, hexadecimal or base 62; cluster IDs; unix nanoseconds; times as in 2026-11-22T15:04:05Z. Default: those on standard input, separated by white space, or the bytes of a binary answer."`
	JSON   bool     `name:"json" help:"Print a line of JSON for each value."`
	Layout string   `name:"snowflake-layout" env:"SNOWFLAKE_LAYOUT" default:"41/5/5/12" help:"As of isotone serve."`
	Epoch  int64    `name:"snowflake-epoch-ms" env:"SNOWFLAKE_EPOCH_MS" default:"1288834974657" help:"As of isotone serve."`
}

// decodedInputMax bounds what is read from standard input, in bytes.
const decodedInputMax = 4 << 20

// explained is what a value can mean, as JSON.
type explained struct {
	Value    string           `json:"value"`
	Readings []explainedValue `json:"readings"` // the likeliest first
}

type explainedValue struct {
	Form   string            `json:"form"`
	Time   *time.Time        `json:"time,omitempty"`
	Fields map[string]string `json:"fields"`
}

// Run explains all values. It returns an error if some have no known form, after all others.
func (c *decodeCmd) Run(ctx context.Context, con console) error {
	if len(c.Values) == 0 && isTerminal(os.Stdin) {
		con.tell("Reading values from the terminal; Ctrl-D ends them.")
	}
	return c.from(ctx, os.Stdin, con)
}

// from is Run with a standard input.
func (c *decodeCmd) from(ctx context.Context, stdin io.Reader, con console) error {
	layout, err := snowflake.ParseLayout(c.Layout, c.Epoch)
	if err != nil {
		return usageError(err.Error())
	}
	values := c.Values
	if len(values) == 0 {
		input, err := readInput(ctx, stdin)
		switch {
		case err != nil:
			return err
		case !isText(input):
			return c.binary(con, input)
		}
		if values = valuesOf(strings.TrimPrefix(string(input), "\ufeff")); len(values) == 0 {
			return usagef("there is nothing to decode: want values as arguments or on standard input, as in: isotone timestamp | isotone decode")
		}
	}
	var wrong []error
	var out bytes.Buffer
	now := time.Now()
	for _, value := range values {
		readings, err := decode.Text(strings.Trim(value, `"',`), layout, now)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		c.explain(&out, value, readings, now)
	}
	if _, err := out.WriteTo(con.out); err != nil {
		return err
	}
	if err := errors.Join(wrong...); err != nil {
		return usageError(err.Error())
	}
	return nil
}

// valuesOf returns the values in a text: those of the JSON answers of nodes, a line each, or words.
func valuesOf(text string) (values []string) {
	for line := range strings.Lines(text) {
		var answer struct {
			Timestamps []json.RawMessage
			IDs        []string
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "{") || json.Unmarshal([]byte(line), &answer) != nil {
			values = append(values, strings.Fields(line)...)
			continue
		}
		for _, t := range answer.Timestamps {
			var parts struct{ Hex string }
			if json.Unmarshal(t, &parts) != nil { // a 64-bit timestamp, which is a string
				_ = json.Unmarshal(t, &parts.Hex)
			}
			values = append(values, parts.Hex)
		}
		values = append(values, answer.IDs...)
	}
	return values
}

// readInput reads all of a standard input, until ctx ends.
func readInput(ctx context.Context, stdin io.Reader) (input []byte, err error) {
	read := make(chan struct{})
	go func() { // a read from a terminal cannot be cancelled: it ends with the process
		defer close(read)
		input, err = io.ReadAll(io.LimitReader(stdin, decodedInputMax+1))
	}()
	select {
	case <-read:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if len(input) > decodedInputMax {
		return nil, usagef("standard input has more than %d bytes", decodedInputMax)
	}
	return input, err
}

// binary explains the bytes of an answer.
func (c *decodeCmd) binary(con console, input []byte) error {
	readings, err := decode.Binary(input, time.Now())
	if err != nil {
		return usageError(err.Error())
	}
	var out bytes.Buffer
	for _, r := range readings {
		c.explain(&out, r.Fields[len(r.Fields)-1].Value, []decode.Reading{r}, time.Now())
	}
	_, err = out.WriteTo(con.out)
	return err
}

// isText reports whether input is text rather than the bytes of an answer.
func isText(input []byte) bool {
	return utf8.Valid(input) && !bytes.ContainsFunc(input, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' })
}

// explain writes what a value means.
func (c *decodeCmd) explain(out *bytes.Buffer, value string, readings []decode.Reading, now time.Time) {
	if c.JSON {
		e := explained{Value: value}
		for _, r := range readings {
			v := explainedValue{Form: r.Form, Fields: map[string]string{}}
			if !r.Time.IsZero() {
				v.Time = &r.Time
			}
			for _, f := range r.Fields {
				v.Fields[camelCase(f.Name)] = f.Value
			}
			e.Readings = append(e.Readings, v)
		}
		_ = json.NewEncoder(out).Encode(e) // into memory
		return
	}
	for i, r := range readings {
		if i == 0 {
			fmt.Fprintf(out, "%s: %s\n", value, r.Form)
		} else {
			fmt.Fprintf(out, "less likely: %s\n", r.Form)
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		if !r.Time.IsZero() {
			fmt.Fprintf(t, "  time\t%s (%s)\n", r.Time.Format(time.RFC3339Nano), relative(r.Time.Unix()-now.Unix()))
		}
		for _, f := range r.Fields {
			fmt.Fprintf(t, "  %s\t%s\n", f.Name, f.Value)
		}
		_ = t.Flush() // into memory
	}
}

// camelCase returns a name for JSON, such as unixNanoseconds.
func camelCase(name string) string {
	words := strings.Fields(name)
	for i := range words[1:] {
		words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
	}
	return strings.Join(words, "")
}

// relative returns a distance from now, in seconds, in words.
func relative(seconds int64) string {
	text := "ago"
	if seconds > 0 {
		text = "from now"
	}
	seconds = max(seconds, -seconds)
	for _, unit := range []struct {
		size int64
		name string
	}{{31_556_952, "year"}, {24 * 3600, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}} {
		if n := seconds / unit.size; n == 1 {
			return fmt.Sprintf("1 %s %s", unit.name, text)
		} else if n > 1 {
			return fmt.Sprintf("%d %ss %s", n, unit.name, text)
		}
	}
	return "just now"
}
