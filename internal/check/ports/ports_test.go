package ports_test

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
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

// TestPorts_AreReserved for this process against another one, and for each caller against the next.
func TestPorts_AreReserved(t *testing.T) {
	if text := os.Getenv(otherVariable); text != "" {
		avoid(t, text)
		return
	}
	const count = 5
	mine := map[int]bool{}
	for range count {
		port, err := ports.Free(10)
		if err != nil {
			t.Fatal(err)
		}
		for p := port; p < port+10; p++ {
			if mine[p] {
				t.Fatalf("port %d is found twice", p)
			}
			mine[p] = true
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	list, err := json.Marshal(slices.Collect(maps.Keys(mine)))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), otherVariable+"="+string(list))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("another process: %v\n%s", err, out)
	}
}

// otherVariable has the ports of another process.
const otherVariable = "ISOTONE_TEST_PORTS"

// avoid wants none of the ports in text to be found, of which nothing listens on any.
func avoid(t *testing.T, text string) {
	var theirs []int
	if err := json.Unmarshal([]byte(text), &theirs); err != nil {
		t.Fatal(err)
	}
	taken := map[int]bool{}
	for _, p := range theirs {
		taken[p] = true
	}
	for range 500 {
		if port, err := ports.Free(1); err != nil || taken[port] {
			t.Fatalf("port %d, %v: of another process: %v", port, err, taken[port])
		}
	}
}
