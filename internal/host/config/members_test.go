package config_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

// RAFT_ADDR may be every interface, unless it would be the peer address on record.
func TestCheckAlone_RefusesAnAddressThatNobodyCanDial(t *testing.T) {
	for _, tt := range []struct {
		args    string
		refused bool
	}{
		{"--raft-addr=0.0.0.0:60001", true},
		{"--raft-addr=[::]:60001", true},
		{"--raft-addr=10.0.0.1:60001", false},
		{"--raft-addr=localhost:0", false},
		{"--raft-addr=0.0.0.0:60001 --peers=1=10.0.0.1:60001", false},
		{"--raft-addr=0.0.0.0:60001 --peers=dns+srv:a.example?count=3", false},
		{"--raft-addr=0.0.0.0:60001 --join=10.0.0.1:8080", false},
	} {
		s := parseAll(t, nil, strings.Fields(tt.args)...)
		err := s.CheckAlone(false)
		var fault config.Fault
		if errors.As(err, &fault) != tt.refused || (err == nil) == tt.refused {
			t.Errorf("%s: %v", tt.args, err)
		}
		if tt.refused && (fault.Env != "RAFT_ADDR" || fault.Value != s.RaftAddr || !strings.Contains(fault.Want, "PEERS: 1=10.0.0.1:60001")) {
			t.Errorf("%s: %v", tt.args, fault)
		}
	}
}

// Three nodes with IDs and without PEERS would be three oracles.
func TestCheckAlone_RefusesAnIDThatImpliesOthers(t *testing.T) {
	for args, line := range map[string]string{
		"--node-id=2":                                   "PEERS=1=HOST:PORT,2=localhost:60001",
		"--node-id=3 --raft-addr=0.0.0.0:1":             "PEERS=1=HOST:PORT,3=10.0.0.1:60001",
		"--node-id=3 --raft-addr=10.0.0.3:5":            "PEERS=1=HOST:PORT,3=10.0.0.3:5",
		"--node-id=1":                                   "",
		"--node-id=2 --peers=2=10.0.0.2:1":              "",
		"--node-id=2 --join=10.0.0.1:8080":              "",
		"--node-id=2 --peers=dns+srv:a.example?count=3": "",
	} {
		s := parseAll(t, nil, strings.Fields(args)...)
		err := s.CheckAlone(false)
		var fault config.Fault
		if line == "" && err != nil || line != "" && (!errors.As(err, &fault) || fault.Env != "NODE_ID" || !strings.Contains(fault.Want, line)) {
			t.Errorf("%s: %v, want %q", args, err, line)
		}
	}
	s := parseAll(t, nil, "--node-id=2")
	if err := s.CheckAlone(true); err != nil {
		t.Errorf("restored alone: %v", err)
	}
}

// What goes into the records of members has room there.
func TestParse_BoundsAddressesAndInitialMembers(t *testing.T) {
	long := strings.Repeat("a", 253)
	var list []string
	for id := range 65 {
		list = append(list, fmt.Sprintf("%d=a:%d", id+1, id+1))
	}
	for arg, want := range map[string]string{
		"--advertise-addr=" + long + ":80":         "",
		"--advertise-addr=" + long + ":8080":       "ADVERTISE_ADDR",
		"--raft-addr=" + long + ":8080":            "RAFT_ADDR",
		"--peers=1=" + long + ":8080":              "PEERS",
		"--join=https://" + long + ":8080":         "JOIN",
		"--advertise-addr=bücher.example:1":        "ADVERTISE_ADDR",
		"--advertise-addr=xn--bcher-kva.example:1": "",
		"--peers=" + strings.Join(list[:64], ","):  "",
		"--peers=" + strings.Join(list, ","):       "PEERS",
	} {
		_, err := parse(t, nil, arg)
		var fault config.Fault
		if want == "" && err != nil || want != "" && (!errors.As(err, &fault) || fault.Env != want || !strings.Contains(fault.Want, "at most")) {
			t.Errorf("%.40s: %v", arg, err)
		}
	}
	v := config.SRV{Name: "isotone", Count: 1}
	if _, err := v.Peers([]*net.SRV{{Target: "isotone-0." + long, Port: 1}}); err == nil {
		t.Error("a long name in DNS is accepted")
	}
}
