// Package supervisor tells the program that supervises this process what it is doing, by the
// protocol of systemd, sd_notify(3): lines of text in one datagram to the Unix socket that the
// environment variable NOTIFY_SOCKET names. Without the variable there is nobody to tell.
package supervisor

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Variable is the environment variable with the socket: an absolute path, or "@" and the name of
// an abstract socket of Linux.
const Variable = "NOTIFY_SOCKET"

// sendTimeout bounds the wait for a supervisor that does not read. Its queue holds some ten
// datagrams, and it gets less than ten in the life of a process.
const sendTimeout = time.Second

// Ready says that the process serves. systemd then starts the units that come after it. It may be
// sent again with another status, which "systemctl status" shows: one line of text.
func Ready(status string) error { return send("READY=1", "STATUS="+status) }

// Stopping says that the process has begun to end and will take no longer than that, although the
// supervisor may be set to wait for less before it kills.
func Stopping(within time.Duration) error {
	return send("STOPPING=1", "STATUS=stopping", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

func send(lines ...string) error {
	name := os.Getenv(Variable)
	if name == "" {
		return nil
	}
	if name[0] != '/' && name[0] != '@' {
		return fmt.Errorf("%s=%.80q: want the path of a Unix socket, or @ and the name of one", Variable, name)
	}
	conn, err := net.DialTimeout("unixgram", name, sendTimeout)
	if err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	return nil
}
