// Joke is the lesson of distribution, balance and locality as one program: ten echo
// servers, each slow, single-threaded and with a cache for two answers, behind
// internal/balance/proxy, with each of its strategies in turn under the same load. README.md
// tells what comes out, and why.
//
// It owns the workers, the load, and how the result is shown. The strategies are
// internal/balance's, and all requests go through the proxy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes: a failure while running, and a command line that cannot be used.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal has its default effect
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	s, err := parseSettings(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\nRun with --help for the flags.\n", err)
		return exitUsage
	}
	svg, err := createPicture(s.picture)
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitUsage
	}
	err = errors.Join(tell(ctx, s, svg, out, progress), closePicture(svg))
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitFailure
	}
	return 0
}

// createPicture makes the file before a long run, in which a wrong name would only show at
// the end. An old picture stays until there is another. Without a name the file is nil.
func createPicture(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	svg, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--svg: %w", err)
	}
	return svg, nil
}

// writePicture replaces what was in the file.
func writePicture(svg *os.File, text string) error {
	info, err := svg.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = svg.Truncate(0)
	}
	if err == nil {
		_, err = io.WriteString(svg, text)
	}
	if err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}

// closePicture removes a file that has nothing in it: one that was made for a run that has
// failed.
func closePicture(svg *os.File) error {
	if svg == nil {
		return nil
	}
	info, err := svg.Stat()
	err = errors.Join(err, svg.Close())
	if err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		err = os.Remove(svg.Name())
	}
	return err
}

// tell tries everything that s asks for and shows the result, in svg too unless that is nil.
func tell(ctx context.Context, s settings, svg *os.File, out, progress io.Writer) error {
	results, err := tryAll(ctx, s, progress)
	if err != nil {
		return err
	}
	if svg != nil {
		if err := writePicture(svg, picture(s, results)); err != nil {
			return err
		}
	}
	if s.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	_, err = io.WriteString(out, table(results)+"\n"+plot(results))
	return err
}
