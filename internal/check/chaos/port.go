//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn below the range from which the kernel takes the local ports of outgoing
// connections (32768 and up by default): a port from that range could be taken when a node
// that was killed is started again.
const (
	portMin = 10_000
	portMax = 32_000
)

// portTriesMax bounds the search for free ports; most are free.
const portTriesMax = 200

// FreePorts returns the first of count consecutive ports of 127.0.0.1 that are
// free for TCP and UDP now.
func FreePorts(count int) (int, error) {
	for range portTriesMax {
		first := portMin + rand.IntN(portMax-portMin-count)
		if allFree(first, count) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("chaos: no %d consecutive free ports found from %d to %d", count, portMin, portMax)
}

func allFree(first, count int) bool {
	for port := first; port < first+count; port++ {
		if PortFree(port) != nil {
			return false
		}
	}
	return true
}

// PortFree returns nil if the port of 127.0.0.1 can be bound for TCP and UDP.
func PortFree(port int) error {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return fmt.Errorf("chaos: %w", errors.Join(err, tcp.Close()))
	}
	return errors.Join(tcp.Close(), udp.Close())
}
