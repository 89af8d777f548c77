package demoscale

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes of a failure while running, and of an invalid command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

// comparison is what a command line asks for.
type comparison interface {
	common() *settings
	compare(ctx context.Context, progress io.Writer) (shown, error)
}

// shown is what a comparison shows: its results, as text, and as SVG.
type shown struct {
	results       any
	text, picture string
}

// Run executes one command line of examples/joke and returns the exit code.
func Run(ctx context.Context, args []string, out, progress io.Writer) int {
	c, err, help := comparison(nil), error(nil), "--help"
	if len(args) > 0 && args[0] == modelsCommand {
		help = modelsCommand + " --help"
		var s modelSettings
		s, err = parseModelSettings(args[1:], progress)
		c = &s
	} else {
		var s settings
		s, err = parseSettings(args, progress)
		c = &s
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\nRun with %s for the flags.\n", err, help)
		return exitUsage
	}
	svg, err := createPicture(c.common().picture)
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitUsage
	}
	err = errors.Join(compare(ctx, c, svg, out, progress), closePicture(svg))
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
func compare(ctx context.Context, c comparison, svg *os.File, out, progress io.Writer) error {
	show, err := c.compare(ctx, progress)
	if err != nil {
		return err
	}
	if svg != nil {
		if err := writePicture(svg, show.picture); err != nil {
			return err
		}
	}
	if c.common().json {
		return writeJSON(out, show.results)
	}
	_, err = io.WriteString(out, show.text)
	return err
}

func writeJSON(out io.Writer, results any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(results)
}
