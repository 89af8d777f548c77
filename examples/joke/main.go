// Joke compares the strategies of internal/proxy/balance under the same load: ten slow, single-threaded
// echo servers, each with a cache for two answers, behind internal/proxy. README.md explains
// the results.
//
// "joke models" compares ways to distribute requests: a TCP proxy, a name service, and a hash in
// the client, while one of the workers dies and comes back.
//
// It owns the workers, the load and the output.
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

// Exit codes of a failure while running, and of an invalid command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	if len(args) > 0 && args[0] == modelsCommand {
		return runModels(ctx, args[1:], out, progress)
	}
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
	err = errors.Join(compare(ctx, s, svg, out, progress), closePicture(svg))
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitFailure
	}
	return 0
}

// createPicture creates the file before a long run, so that an invalid name fails early. It keeps
// the contents of an existing file. Without a name it returns nil.
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

// writePicture replaces the contents of the file.
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

// closePicture closes the file, and removes it if it is empty because the run has failed.
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

// compare runs all trials and prints the results, as a picture too unless svg is nil.
func compare(ctx context.Context, s settings, svg *os.File, out, progress io.Writer) error {
	results, err := tryAll(ctx, s, progress)
	if err != nil {
		return err
	}
	if svg != nil {
		if err := writePicture(svg, picture(s, results)); err != nil {
			return err
		}
	}
	return printResults(out, s.json, results, table(results)+"\n"+plot(results))
}

// printResults prints results as JSON, or text that says the same.
func printResults(out io.Writer, asJSON bool, results any, text string) error {
	if !asJSON {
		_, err := io.WriteString(out, text)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(results)
}
