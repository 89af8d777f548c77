package ports

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// held are the sockets that reserve ports.
var held []net.Listener

// lock reports whether no other process has any of the ports, and takes them: each by a name of a Unix
// socket without a file. Such names belong to the network namespace, as ports do, and end with the
// process.
func lock(first, count int) (bool, error) {
	for port := first; port < first+count; port++ {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@isotone-port-%d", port)})
		if errors.Is(err, syscall.EADDRINUSE) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		held = append(held, l)
	}
	return true, nil
}

// unlock gives all ports back.
func unlock() (err error) {
	for _, l := range held {
		err = errors.Join(err, l.Close())
	}
	held = nil
	return err
}
