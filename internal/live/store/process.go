package store

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/isotone/isotone"
)

// closeTimeout is how long a process has to end its connections before it is killed.
const closeTimeout = 500 * time.Millisecond

// Process loads the document of a URL in a process of its own, which the first load starts. Its
// methods are called by one goroutine. The zero value of all but URL is right.
type Process struct {
	// URL is the text of the URL.
	URL string

	cmd  *exec.Cmd // nil: not started
	in   io.WriteCloser
	out  *bufio.Reader
	last []byte // the document of the last good reply
}

// Load returns the document, which the caller owns, of at most sizeMax bytes. It returns soon after
// ctx ends. An unchanged document may be the same slice as before.
func (p *Process) Load(ctx context.Context, sizeMax int) ([]byte, error) {
	if err := p.start(); err != nil {
		return nil, err
	}
	// The end of ctx costs the process, and what it connected to, so it is told to end earlier.
	r := request{URL: p.URL, SizeMax: sizeMax, TimeoutMS: 1 << 32}
	if end, ok := ctx.Deadline(); ok {
		r.TimeoutMS = max(1, int64(time.Until(end)*9/10/time.Millisecond))
	}
	process := p.cmd.Process
	stop := context.AfterFunc(ctx, func() { _ = process.Kill() })
	document, changed, usable, err := ask(p.in, p.out, r)
	inTime := stop()
	if !usable || !inTime {
		p.kill()
	}
	var coded *isotone.Error
	switch {
	case !inTime:
		return nil, ctx.Err()
	case err != nil && !errors.As(err, &coded):
		return nil, isotone.Errorf(isotone.CodeInternal, "%s ended; its standard error, which is that of this process, may say why", Program)
	case err != nil:
		return nil, err
	case changed:
		p.last = document
	case p.last == nil:
		p.kill()
		return nil, errGarbled
	}
	return p.last, nil
}

// start starts the process, unless it runs.
func (p *Process) start() error {
	if p.cmd != nil {
		return nil
	}
	path, err := find()
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Stderr = os.Stderr // of the program's own: a panic
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		_ = in.Close()
		return err
	}
	if err := cmd.Start(); err != nil {
		return isotone.Errorf(isotone.CodeInternal, "%s cannot be started: %v", path, err)
	}
	p.cmd, p.in, p.out, p.last = cmd, in, bufio.NewReaderSize(out, replyLineMax), nil
	return nil
}

// find returns the path of the program: beside this one, or else in PATH.
func find() (string, error) {
	if self, err := os.Executable(); err == nil {
		name := Program
		if runtime.GOOS == "windows" {
			name += ".exe"
		}
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(Program)
	if err != nil {
		return "", isotone.Errorf(isotone.CodeNotFound, "documents in databases need the program %s beside isotone or in PATH: "+
			"run \"make install-live\", or \"go install ./cmd/%[1]s\" in adapters/livestores", Program)
	}
	return path, nil
}

// kill ends the process at once.
func (p *Process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	_ = p.cmd.Wait() // the error is the kill, or what the load has told already
	p.cmd = nil
}

// Close ends the process. It takes at most closeTimeout, and what the system needs.
func (p *Process) Close() {
	if p.cmd == nil {
		return
	}
	process := p.cmd.Process
	timer := time.AfterFunc(closeTimeout, func() { _ = process.Kill() })
	defer timer.Stop()
	_ = p.in.Close() // asks it to end
	_ = p.cmd.Wait()
	p.cmd = nil
}
