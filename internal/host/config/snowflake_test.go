package config_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/snowflake"
)

func TestSnowflakes_WorkersAreWithinTheLayout(t *testing.T) {
	for args, want := range map[string]string{
		"":                                  "",
		"--worker-id=0":                     "",
		"--worker-id=31 --datacenter-id=31": "",
		"--worker-id=32":                    "WORKER_ID",
		"--worker-id=1 --datacenter-id=32":  "DATACENTER_ID",
		"--snowflake-layout=42/10/11 --worker-id=1023":                "",
		"--snowflake-layout=42/10/11 --worker-id=1 --datacenter-id=1": "DATACENTER_ID",
		"--snowflake-layout=40/12/11 --worker-id=1024":                "WORKER_ID",
		"--worker-id=1 --snowflake-workers=2":                         "SNOWFLAKE_WORKERS",
		"--worker-id=1 --snowflake-workers=1":                         "",
		"--snowflake-layout=41/5/5/13":                                "SNOWFLAKE_LAYOUT",
	} {
		_, err := parse(t, nil, strings.Fields(args)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a fault of %q", args, err, want)
		}
	}
}

func TestSnowflakes_JoinsDatacenterAndWorker(t *testing.T) {
	s, err := parse(t, nil, "--worker-id=3", "--datacenter-id=2")
	if err != nil {
		t.Fatal(err)
	}
	if layout, worker, err := s.Snowflakes(); layout != snowflake.Twitter || worker != 2<<5|3 || err != nil {
		t.Errorf("%v, %d, %v", layout, worker, err)
	}
	s, _ = parse(t, nil)
	if _, worker, err := s.Snowflakes(); worker != -1 || err != nil {
		t.Errorf("%d, %v", worker, err)
	}
}

func TestSnowflakes_EachFaultIsItsOwnSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--snowflake-epoch-ms=-5":     `SNOWFLAKE_EPOCH_MS (--snowflake-epoch-ms) = "-5": want unix milliseconds, not before 1970`,
		"--snowflake-layout=1/2/3":    `SNOWFLAKE_LAYOUT (--snowflake-layout) = "1/2/3": layout 1/2/3: the parts have 6 bits, want 63`,
		"--snowflake-layout=41-10-12": `SNOWFLAKE_LAYOUT (--snowflake-layout) = "41-10-12": layout "41-10-12": want time/datacenter/worker/sequence or time/worker/sequence, in bits`,
	} {
		_, err := parse(t, nil, args)
		if err == nil {
			t.Fatalf("%s: no fault", args)
		}
		if got := strings.Split(err.Error(), "\n  "); len(got) != 2 || got[1] != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}
