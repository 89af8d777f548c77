package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// unixPathMax bounds the path of a Unix socket, in bytes: sun_path has 108 on Linux and 104 on BSD and macOS, with a zero at
// the end.
const unixPathMax = 103

// Unix listens on a Unix socket that only its owner may use, at path. What is there, as after a crash, is replaced: only the
// process that owns the directory may call it. The socket gets its permissions before it gets its name. Close removes it.
func Unix(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".socket-") // 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	short, done, err := shorten(made)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.Listen("unix", short)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	own, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &unixListener{l, path, own}, nil
}

// unixListener removes its socket when it is closed, unless another process has put its own in that place.
type unixListener struct {
	net.Listener
	path string
	own  os.FileInfo
}

func (l *unixListener) Close() error {
	err := l.Listener.Close()
	if there, lost := os.Lstat(l.path); err == nil && lost == nil && os.SameFile(there, l.own) {
		err = os.Remove(l.path)
	}
	return err
}

// DialUnix connects to the Unix socket at path.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", short)
}

func tooLong(path string) error {
	return fmt.Errorf("%s: the path of a Unix socket has at most %d bytes", path, unixPathMax)
}
