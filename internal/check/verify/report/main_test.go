package report_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/chromium"
)

// browser is shared by all tests.
var browser chromium.Browser

// TestMain ends the browser, and checks for leaked goroutines.
func TestMain(m *testing.M) {
	code := m.Run()
	browser.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
