//go:build linux

package membership_test

import (
	"os"
	"testing"

	"github.com/isotone/isotone/internal/check/trial"
)

func TestMain(m *testing.M) { os.Exit(trial.Main(m)) }
