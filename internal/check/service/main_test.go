//go:build linux

package service_test

import (
	"os"
	"testing"

	"github.com/isotone/isotone/internal/check/trial"
)

func TestMain(m *testing.M) { os.Exit(trial.Main(m, browser.Close)) }
