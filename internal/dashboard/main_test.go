package dashboard_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/chromium"
)

// browser looks at the page.
var browser chromium.Browser

// TestMain ends the browser that the tests share, and looks for goroutines left behind.
func TestMain(m *testing.M) {
	code := m.Run()
	browser.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
