package dashboard_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/fakecluster"
)

// TestPage_Pictures writes the pictures of docs/health.md to the directory that
// DASHBOARD_PICTURES names, if it is set.
func TestPage_Pictures(t *testing.T) {
	dir := os.Getenv("DASHBOARD_PICTURES")
	if dir == "" {
		t.Skip("needs a directory in DASHBOARD_PICTURES")
	}
	c := fakecluster.New(t, 3, time.Second, page)
	b := browser.Tab(t)
	for _, picture := range []struct {
		file          string
		width, height int
		scheme        string
		density       float64
	}{
		{"dashboard-desktop.png", 1280, 800, "light", 1.5},
		{"dashboard-phone.png", 390, 844, "light", 2},
		{"dashboard-dark.png", 1280, 800, "dark", 1.5},
	} {
		b.Open("http://"+c.Nodes[1].Addr+"/", picture.width, picture.height, picture.scheme)
		b.Command("Emulation.setDeviceMetricsOverride", map[string]any{"width": picture.width, "height": picture.height,
			"deviceScaleFactor": picture.density, "mobile": picture.width < 600}, nil)
		b.Until(5*time.Second, "document.querySelectorAll('#members .lead').length === 1")
		b.Until(5*time.Second, "document.querySelector('#feed').textContent === 'live from 3 of 3'")
		b.Until(5*time.Second, "document.querySelector('.line.edge').getAttribute('d').length > 2000")
		b.Screenshot(filepath.Join(dir, picture.file))
	}
}
