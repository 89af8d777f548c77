package ports_test

import (
	"net"
	"slices"
	"testing"

	"github.com/isotone/isotone/internal/check/ports"
)

func TestPorts_FreePortsCanBeBound(t *testing.T) {
	addrs, err := ports.Addrs(3)
	if err != nil || len(slices.Compact(slices.Clone(addrs))) != 3 {
		t.Fatalf("%q, %v", addrs, err)
	}
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}

func TestPorts_CheckNoticesBothProtocols(t *testing.T) {
	first, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: first})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: first + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if ports.Check(first) == nil || ports.Check(first+1) == nil {
		t.Error("a port that is in use counts as free")
	}
}
