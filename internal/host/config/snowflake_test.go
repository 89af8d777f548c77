package config_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front"
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
		"--snowflake-layout=46/10/7":                                  "",
		"--snowflake-layout=47/10/6":                                  "SNOWFLAKE_LAYOUT",
	} {
		_, err := parse(t, nil, strings.Fields(args)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a fault of %q", args, err, want)
		}
	}
}

func TestSnowflakes_JoinsDatacenterAndWorker(t *testing.T) {
	if s := parseAll(t, nil, "--worker-id=3", "--datacenter-id=2"); s.SnowflakeLayout != snowflake.Twitter || s.FixedWorker != 2<<5|3 {
		t.Errorf("%v, %d", s.SnowflakeLayout, s.FixedWorker)
	}
	if s := parseAll(t, nil); s.FixedWorker != -1 {
		t.Errorf("%d", s.FixedWorker)
	}
}

func TestSnowflakes_TheEpochIsInMilliseconds(t *testing.T) {
	for text, ok := range map[string]bool{
		"0": true, "1": false, "100000000000": false, "100000000001": true, "1288834974657": true, "253402300799999": true, "253402300800000": false,
	} {
		if _, err := parse(t, nil, "--snowflake-epoch-ms="+text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSnowflakes_ALeaseIsSomeTicks(t *testing.T) {
	for args, ok := range map[string]bool{
		"--rtt-ms=2000": true, "--rtt-ms=2001": false, "--rtt-ms=200 --snowflake-lease-ms=1000": true, "--rtt-ms=201 --snowflake-lease-ms=1000": false,
		"--rtt-ms=10000 --snowflake-lease-ms=50000": true,
	} {
		_, err := parse(t, nil, strings.Fields(args)...)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "SNOWFLAKE_LEASE_MS (--snowflake-lease-ms)") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestSnowflakes_EachFaultIsItsOwnSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--snowflake-epoch-ms=-5": `SNOWFLAKE_EPOCH_MS (--snowflake-epoch-ms) = "-5": want unix milliseconds, not before 1970`,
		"--snowflake-epoch-ms=1704067200": `SNOWFLAKE_EPOCH_MS (--snowflake-epoch-ms) = "1704067200": want 0 or unix milliseconds after 100000000000: ` +
			`these are seconds, and as milliseconds 1704067200000`,
		"--snowflake-epoch-ms=1704067200000000": `SNOWFLAKE_EPOCH_MS (--snowflake-epoch-ms) = "1704067200000000": want unix milliseconds, ` +
			`not after the year 9999: these are micro- or nanoseconds`,
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

// TestSnowflakes_TheSmallestSequenceHasRoomForTheLargestRequest, and the next smaller one, which is refused, has not.
func TestSnowflakes_TheSmallestSequenceHasRoomForTheLargestRequest(t *testing.T) {
	for text, enough := range map[string]bool{"46/10/7": true, "47/10/6": false} {
		layout, err := snowflake.ParseLayout(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := snowflake.NewGenerator(0, snowflake.Options{Layout: layout})
		if err != nil || (g.BatchMax() >= front.IDsMax) != enough {
			t.Errorf("%s: %d IDs at once of %d, %v", text, g.BatchMax(), front.IDsMax, err)
		}
	}
}
