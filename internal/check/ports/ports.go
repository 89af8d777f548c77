// Package ports finds ports of 127.0.0.1 for the servers that tests, demos and examples start. Any goroutine
// may call its functions.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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

// Free returns the first of count consecutive ports that are free for TCP and UDP now.
func Free(count int) (int, error) {
	for range triesMax {
		first := lowest + rand.IntN(highest-lowest-count)
		if allFree(first, count) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("ports: no %d consecutive free ports found from %d to %d", count, lowest, highest)
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
