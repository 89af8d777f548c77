//go:build !linux

package probe

import (
	"os"
	"runtime"

	"github.com/isotone/isotone/internal/inspect/doctor"
)

func dataSync(f *os.File) error { return f.Sync() }

func space(*doctor.Disk) error { return nil }

func systemClock() doctor.Clock { return doctor.Clock{} }

func limits() doctor.Limits { return doctor.Limits{Processors: runtime.GOMAXPROCS(0)} }
