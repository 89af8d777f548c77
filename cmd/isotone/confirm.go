package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// confirm asks on the terminal whether to go on. Without a terminal, and when ctx ends before the
// answer, it returns an error.
func confirm(ctx context.Context, con console, question string) error {
	if !isTerminal(os.Stdin) {
		return usagef("%s Confirm with --yes.", question)
	}
	return confirmFrom(ctx, os.Stdin, con, question)
}

// confirmFrom is confirm with a terminal.
func confirmFrom(ctx context.Context, in io.Reader, con console, question string) error {
	fmt.Fprintf(con.err, "%s Go on? [y/N] ", question)
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() { // a read from a terminal cannot be cancelled: it ends with the process
		text, err := bufio.NewReader(in).ReadString('\n')
		read <- line{text, err}
	}()
	var answer line
	select {
	case answer = <-read:
	case <-ctx.Done():
		fmt.Fprintln(con.err)
		return fmt.Errorf("%w: nothing was changed", context.Cause(ctx))
	}
	if answer.text == "" && answer.err != nil { // /dev/null looks like a terminal
		return usagef("Nobody answers. Confirm with --yes.")
	}
	if a := strings.ToLower(strings.TrimSpace(answer.text)); a != "y" && a != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}
