// Package ports finds ports of 127.0.0.1 for the servers that tests, demos and examples start. Any goroutine
// may call its functions.
//
// A port is reserved for the process that found it, also while nothing listens on it: a server that
// is killed finds its port again, although other tests look for ports at the same time, in this
// process or, on Linux, in another.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are drawn below the range from which the kernel takes the local ports of outgoing
// connections (32768 and up by default): a port from that range could be taken before a server
// listens on it, or when one that was killed is started again.
const (
	lowest  = 10_000
	highest = 32_000
)

// triesMax bounds the search for free ports; most are free.
const triesMax = 200

// reservedMax bounds the ports that a process reserves. At the bound it gives all earlier ones back: a
// storm of hours uses many, few of them at a time. Each takes an open file on Linux.
const reservedMax = 2_000

var (
	mu       sync.Mutex
	reserved = map[int]bool{}
)

// Free returns the first of count consecutive ports, which are free for TCP and UDP now, and reserves
// them until the process ends.
func Free(count int) (int, error) {
	mu.Lock()
	defer mu.Unlock()
	if len(reserved)+count > reservedMax {
		clear(reserved)
		if err := unlock(); err != nil {
			return 0, fmt.Errorf("ports: %w", err)
		}
	}
	for range triesMax {
		first := lowest + rand.IntN(highest-lowest-count)
		if ok, err := reserve(first, count); err != nil {
			return 0, fmt.Errorf("ports: %w", err)
		} else if ok && allFree(first, count) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("ports: no %d consecutive free ports found from %d to %d", count, lowest, highest)
}

// reserve reports whether neither this process nor another one has any of the ports, and takes them.
func reserve(first, count int) (bool, error) {
	for port := first; port < first+count; port++ {
		if reserved[port] {
			return false, nil
		}
	}
	if ok, err := lock(first, count); !ok || err != nil {
		return false, err
	}
	for port := first; port < first+count; port++ {
		reserved[port] = true
	}
	return true, nil
}

// Addrs returns count addresses 127.0.0.1:PORT with the ports of [Free].
func Addrs(count int) (addrs []string, err error) {
	first, err := Free(count)
	if err != nil {
		return nil, err
	}
	for n := range count {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(first+n)))
	}
	return addrs, nil
}

func allFree(first, count int) bool {
	for port := first; port < first+count; port++ {
		if Check(port) != nil {
			return false
		}
	}
	return true
}

// Check returns nil if the port can be bound for TCP and UDP.
func Check(port int) error {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return fmt.Errorf("ports: %w", errors.Join(err, tcp.Close()))
	}
	return errors.Join(tcp.Close(), udp.Close())
}
