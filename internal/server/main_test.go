package server_test

import (
	"os"
	"testing"

	"github.com/isotone/isotone/internal/check/parallel"
)

func TestMain(m *testing.M) { os.Exit(parallel.Tests{M: m, N: 6}.Run()) }
