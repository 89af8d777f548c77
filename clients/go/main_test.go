package main

import (
	"os"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/conformance"
)

// asDriver has the binary of the tests be the driver.
const asDriver = "ISOTONE_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		main()
	}
	if err := os.Setenv(asDriver, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestClient_KeepsTheRules plays all scenarios to the Go client.
func TestClient_KeepsTheRules(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report, err := conformance.Run(t.Context(), conformance.Suite{Driver: []string{self}, Scenarios: conformance.Scenarios()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d scenarios", len(report.Outcomes))
	for _, o := range report.Outcomes {
		switch {
		case strings.HasPrefix(o.Skipped, "the client"):
			t.Errorf("%s was skipped: %s", o.Name, o.Skipped)
		case o.Skipped != "":
			t.Logf("%s was skipped: %s", o.Name, o.Skipped)
		case !o.Passed:
			t.Errorf("%s: %v\n  %s", o.Name, o.Faults, strings.Join(o.Trace, "\n  "))
		}
	}
}
