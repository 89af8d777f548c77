package demolive

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/live"
)

// TLS says in which phases the readers use TLS.
type TLS string

// The phases of a run.
const (
	TLSBoth TLS = "both" // half of the time without, then half with
	TLSOn   TLS = "on"
	TLSOff  TLS = "off"
)

// phases returns for each phase whether it uses TLS.
func (t TLS) phases() []bool {
	switch t {
	case TLSOn:
		return []bool{true}
	case TLSOff:
		return []bool{false}
	}
	return []bool{false, true}
}

// The limits of a run.
const (
	// ReadersDefault is used if Options.Readers is 0 and there are files for as many.
	ReadersDefault = 9000
	// ReadersMax leaves pagesMax of the 10,000 streams of a node to browsers.
	ReadersMax = 10_000 - pagesMax
	pagesMax   = 20

	durationMin = 2 * time.Second
	durationMax = 10 * time.Minute
)

// Options describe a run. Start from [Default]; the zero value is not valid.
type Options struct {
	// Command starts isotone; " serve" is appended.
	Command []string
	// Readers is the number of readers, 1 to ReadersMax, each with a connection. 0: ReadersDefault, or as many as the
	// limit of open files allows.
	Readers int
	// Duration is how long votes change, 2 s to 10 min, without the time that readers take to connect.
	Duration time.Duration
	// TLS says in which phases the readers use TLS.
	TLS TLS
	// Redis is a URL as in LIVE, of a key that does not exist; it is removed in the end. "": a file.
	Redis string
	// Version is reported in the result.
	Version string
	// Opened, if not nil, is called once, with the URL of the page.
	Opened func(url string)
	// Show, if not nil, is called several times a second while readers connect, and then each second.
	Show func(Now)
}

// Default returns the defaults of the command line.
func Default() Options { return Options{Duration: 20 * time.Second, TLS: TLSBoth} }

// readersFor returns how many readers a node with that limit of open files serves; 0: unknown. It keeps 256 files and a
// fifth of the others for itself and Thrift, and gives one address streams on half of the rest.
func readersFor(files uint64) int {
	if files == 0 {
		return ReadersMax
	}
	return max(0, min(ReadersMax, int((max(files, 256)-256)/5*2)-pagesMax))
}

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument and lists everything that is wrong.
func (o *Options) Validate() error { return o.validate(openFiles()) }

func (o *Options) validate(files uint64) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(o.Command) == 0 {
		fault("no command to start a node with")
	}
	switch allowed := readersFor(files); {
	case o.Readers < 0 || o.Readers > ReadersMax:
		fault("--readers %d: want 1 to %d, or 0 for the default", o.Readers, ReadersMax)
	case allowed == 0 || o.Readers > allowed:
		fault("--readers %d: %s", o.Readers, filesNote(files))
	}
	if o.Duration < durationMin || o.Duration > durationMax {
		fault("--duration %v: want %v to %v", o.Duration, durationMin, durationMax)
	}
	if o.TLS != TLSBoth && o.TLS != TLSOn && o.TLS != TLSOff {
		fault("--tls %q: want both, on or off", o.TLS)
	}
	if o.Redis != "" {
		u, err := url.Parse(o.Redis)
		if _, bad := live.Parse("votes=" + o.Redis); bad != nil || err != nil || u.Scheme != "redis" {
			fault("--redis: want redis://[[user]:password@]host[:port][/db]#KEY") // without the URL, which may have a password
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "%s", strings.Join(faults, "; "))
}

func filesNote(files uint64) string {
	return fmt.Sprintf("the limit of %d open files (ulimit -n) allows a node %d readers on this machine", files, readersFor(files))
}

// Note says why there are fewer readers than ReadersDefault, or returns "".
func (o *Options) Note() string {
	if o.Readers != 0 || o.readers() == ReadersDefault {
		return ""
	}
	return filesNote(openFiles())
}

// readers returns the number of readers that a valid o stands for.
func (o *Options) readers() int {
	if o.Readers != 0 {
		return o.Readers
	}
	return min(ReadersDefault, readersFor(openFiles()))
}
